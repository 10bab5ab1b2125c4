// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

const (
	simGrace = 20 * time.Second
	// simSlack is what the simulated scheduler, recount and plan add: each runs once a second.
	simSlack = 2 * time.Second
)

// simulation is a cohort in simulated time: pods come and go, a scheduler tries waiting pods in no particular order, allocations are
// stored late, evicted pods end within their grace and are made again by their controllers.
type simulation struct {
	t       *testing.T
	rand    *rand.Rand
	now     time.Time
	version int
	domain  *Domain
	ledger  *Ledger

	running map[string]*simPod
	waiting map[string]*simPod

	made, evictions int
	met             int
	due             map[string]time.Time // pods within their guarantee, and since when
}

type simPod struct {
	Pod

	charges  Charges
	since    time.Time // allocated
	storedAt time.Time // when the allocation can be seen
	version  int
	endAt    time.Time
	ending   bool
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	t.Helper()
	s := &simulation{
		t: t, now: time.Unix(0, 0).UTC(), version: 1,
		rand:    rand.New(rand.NewPCG(seed, 5)), //nolint:gosec // a run that can be repeated needs a seed
		running: map[string]*simPod{}, waiting: map[string]*simPod{}, due: map[string]time.Time{},
	}
	s.domain = &Domain{Ledger: "cohort-c"}
	s.ledger = NewLedger("cohort-c")
	for i := range 5 {
		guaranteed := Amounts{v1alpha1.QuotaMemory: int64(s.rand.IntN(40))}
		hard := Amounts{v1alpha1.QuotaMemory: 40 + int64(s.rand.IntN(80))}
		if seed%2 == 0 {
			guaranteed[v1alpha1.QuotaGPUs] = int64(s.rand.IntN(8))
		}
		name := fmt.Sprintf("team-%d", i)
		s.domain.Quotas = append(s.domain.Quotas, Quota{
			Namespace: name, Name: "q", Pools: []string{"p"}, Cohort: "c", Joined: true, Hard: hard, Guaranteed: guaranteed,
		})
	}
	s.recount()
	return s
}

func (s *simulation) arrive() {
	namespace := s.domain.Quotas[s.rand.IntN(len(s.domain.Quotas))].Namespace
	s.wait(namespace, 1+int64(s.rand.IntN(25)), int32(s.rand.IntN(3)))
}

func (s *simulation) wait(namespace string, memory int64, priority int32) {
	s.made++
	uid := strconv.Itoa(s.made)
	charges := Charges{"p": {v1alpha1.QuotaMemory: memory, v1alpha1.QuotaGPUs: 1}}
	s.version++
	s.waiting[uid] = &simPod{
		Pod:     Pod{UID: uid, Namespace: namespace, Name: "pod-" + uid, Priority: priority, Since: s.now, Cost: charges},
		charges: charges, version: s.version,
	}
}

// schedule tries every waiting pod once, in random order.
func (s *simulation) schedule() {
	uids := slices.Sorted(maps.Keys(s.waiting))
	s.rand.Shuffle(len(uids), func(i, j int) { uids[i], uids[j] = uids[j], uids[i] })
	for _, uid := range uids {
		pod := s.waiting[uid]
		ask := Ask{UID: uid, Namespace: pod.Namespace, Name: pod.Name, Version: strconv.Itoa(pod.version), Since: pod.Since, Charges: pod.charges}
		if s.domain.Verdict(s.ledger, ask, s.now) != nil {
			continue
		}
		s.ledger.Reserve(ask, s.now)
		delete(s.waiting, uid)
		delete(s.due, uid)
		pod.since, pod.storedAt = s.now, s.now.Add(time.Duration(s.rand.IntN(4))*time.Second)
		s.running[uid] = pod
	}
	s.checkBounds()
}

func (s *simulation) recount() {
	seen := Seen{Namespaces: s.domain.Namespaces()}
	for uid, pod := range s.running {
		claim := SeenClaim{UID: uid, Namespace: pod.Namespace, Version: strconv.Itoa(pod.version)}
		if !pod.storedAt.After(s.now) {
			if pod.storedAt.Equal(s.now) || pod.since.Equal(pod.storedAt) {
				s.version++
				pod.version = s.version
				pod.storedAt = time.Time{}
				claim.Version = strconv.Itoa(pod.version)
			}
			claim.Charges = pod.charges
		}
		seen.Claims = append(seen.Claims, claim)
	}
	s.version++
	seen.Version = strconv.Itoa(s.version)
	if err := s.ledger.Recount(seen, s.now); err != nil {
		s.t.Fatalf("recount: %v", err)
	}
}

// leave ends pods that are done, and makes evicted ones again.
func (s *simulation) leave(active bool) {
	for _, uid := range slices.Sorted(maps.Keys(s.running)) {
		pod := s.running[uid]
		switch {
		case pod.ending && !pod.endAt.After(s.now):
			delete(s.running, uid)
			s.wait(pod.Namespace, pod.charges["p"][v1alpha1.QuotaMemory], pod.Priority)
		case active && !pod.ending && pod.storedAt.IsZero() && s.rand.IntN(60) == 0:
			delete(s.running, uid)
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(s.waiting)) {
		if active && s.rand.IntN(150) == 0 {
			delete(s.waiting, uid)
			delete(s.due, uid)
		}
	}
}

func (s *simulation) reclaim() {
	holders := make([]Holder, 0, len(s.running))
	for uid, pod := range s.running {
		holders = append(holders, Holder{
			Namespace: pod.Namespace, Pods: []string{uid}, Priority: pod.Priority, Since: pod.since, Charges: pod.charges, Ending: pod.ending,
		})
	}
	pods := make([]Pod, 0, len(s.waiting))
	for _, pod := range s.waiting {
		pods = append(pods, pod.Pod)
	}
	plan := s.domain.Reclaim(s.ledger, holders, pods, s.now, simGrace)
	s.checkVictims(plan, holders)
	for _, namespace := range s.domain.Namespaces() {
		s.ledger.Want(namespace, plan.Wanted[namespace])
	}
	for _, victim := range plan.Victims {
		pod := s.running[victim.Pods[0]]
		pod.ending, pod.endAt = true, s.now.Add(time.Duration(s.rand.Int64N(int64(simGrace/time.Second)+1))*time.Second)
		s.evictions++
	}
	s.checkDue(plan)
}

// checkBounds holds what is allocated and reserved against hard and the cohort's capacity.
func (s *simulation) checkBounds() {
	together := Amounts{}
	for _, pod := range s.running {
		together = together.Plus(pod.charges["p"])
	}
	g := s.domain.groups()[0]
	for name, capacity := range g.capacity() {
		if together[name] > capacity {
			s.t.Fatalf("%s: the cohort holds %d %s of %d", s.now, together[name], name, capacity)
		}
	}
	for i := range s.domain.Quotas {
		q := &s.domain.Quotas[i]
		if held := s.held(q.Namespace); held[v1alpha1.QuotaMemory] > q.Hard[v1alpha1.QuotaMemory] {
			s.t.Fatalf("%s: %s holds %v of %v", s.now, q.Namespace, held, q.Hard)
		}
	}
}

func (s *simulation) held(namespace string) Amounts {
	held := Amounts{}
	for _, pod := range s.running {
		if pod.Namespace == namespace {
			held = held.Plus(pod.charges["p"])
		}
	}
	return held
}

// checkVictims asks of every eviction: is it for a pod within its guarantee, does it help, is it needed, and does it take
// from somebody above the guarantee what the guarantee does not cover?
func (s *simulation) checkVictims(plan Plan, holders []Holder) {
	g := s.domain.groups()[0]
	u := s.ledger.use("")
	live := map[string]Amounts{}
	for i := range holders {
		if holders[i].Ending {
			u.remove(holders[i].Namespace, holders[i].Charges)
			continue
		}
		live[holders[i].Namespace] = live[holders[i].Namespace].Plus(holders[i].Charges["p"])
	}
	planned := Amounts{}
	next := 0
	for _, pod := range plan.Waiting {
		asked := pod.Cost.In(nil)
		var victims []Victim
		for next < len(plan.Victims) && plan.Victims[next].For.UID == pod.UID {
			victims = append(victims, plan.Victims[next])
			next++
		}
		for _, victim := range victims {
			s.checkVictim(g, victim, live)
			u.remove(victim.Namespace, victim.Charges)
		}
		if len(victims) > 0 && !s.fitsTogether(g, g.used(u).Plus(planned).Plus(asked), asked) {
			s.t.Fatalf("%s: evicting %d does not make room for %s", s.now, len(victims), pod.Name)
		}
		for _, victim := range victims {
			if s.fitsTogether(g, g.used(u).Plus(planned).Plus(asked).Plus(victim.Charges["p"]), asked) {
				s.t.Fatalf("%s: %s need not be evicted for %s", s.now, victim.key(), pod.Name)
			}
		}
		planned = planned.Plus(asked)
	}
	if next != len(plan.Victims) {
		s.t.Fatalf("%s: victims for nobody who waits: %v", s.now, plan.Victims[next:])
	}
}

func (s *simulation) fitsTogether(g group, together, asked Amounts) bool {
	for name, capacity := range g.capacity() {
		if asked[name] > 0 && together[name] > capacity {
			return false
		}
	}
	return true
}

// checkVictim checks that a namespace keeps the pods that its guarantee covers.
func (s *simulation) checkVictim(g group, victim Victim, live map[string]Amounts) {
	covered := Amounts{}
	var own []*simPod
	for _, pod := range s.running {
		if pod.Namespace == victim.Namespace && !pod.ending {
			own = append(own, pod)
		}
	}
	slices.SortFunc(own, func(a, b *simPod) int {
		return byWorth(&Holder{Namespace: a.Namespace, Pods: []string{a.UID}, Priority: a.Priority, Since: a.since},
			&Holder{Namespace: b.Namespace, Pods: []string{b.UID}, Priority: b.Priority, Since: b.since})
	})
	for _, pod := range own {
		with := covered.Plus(pod.charges["p"])
		if !g.covers(victim.Namespace, with, g.capacity()) {
			continue
		}
		covered = with
		if pod.UID == victim.Pods[0] {
			s.t.Fatalf("%s: %s is evicted although the guarantee of %s covers it", s.now, victim.key(), victim.Namespace)
		}
	}
	if g.covers(victim.Namespace, live[victim.Namespace], g.capacity()) {
		s.t.Fatalf("%s: %s is evicted although %s is within its guarantee", s.now, victim.key(), victim.Namespace)
	}
}

// checkDue holds guarantees against the grace.
func (s *simulation) checkDue(plan Plan) {
	within := map[string]bool{}
	for _, pod := range plan.Waiting {
		within[pod.UID] = true
		if _, known := s.due[pod.UID]; !known {
			s.due[pod.UID] = s.now
			s.met++
		}
		if waited := s.now.Sub(s.due[pod.UID]); waited > simGrace+simSlack {
			s.t.Fatalf("%s: %s of %s waits within its guarantee for %s", s.now, pod.Name, pod.Namespace, waited)
		}
	}
	maps.DeleteFunc(s.due, func(uid string, _ time.Time) bool { return !within[uid] })
}

func (s *simulation) step(active bool) {
	s.now = s.now.Add(time.Second)
	s.leave(active)
	if active && len(s.waiting) < 25 && s.rand.IntN(3) == 0 {
		s.arrive()
	}
	s.recount()
	s.schedule()
	s.reclaim()
}

// TestReclaimKeepsItsPromises runs a cohort for simulated hours: guarantees are met within the grace, whatever is evicted is
// neither covered by a guarantee nor evicted in vain, and when nothing changes any more evictions come to an end.
func TestReclaimKeepsItsPromises(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			s := newSimulation(t, seed)
			for range 12 {
				for range 200 {
					s.step(true)
				}
				for range int(2*simGrace/time.Second) + 10 {
					s.step(false)
				}
				before := s.evictions
				for range 60 {
					s.step(false)
				}
				if s.evictions != before {
					t.Fatalf("%s: %d evictions although nothing has changed for a minute", s.now, s.evictions-before)
				}
			}
			if s.evictions == 0 || s.met == 0 {
				t.Errorf("want evictions and pods within guarantees, got %d and %d: the simulation shows nothing", s.evictions, s.met)
			}
			t.Logf("%d pods, %d within a guarantee, %d evictions", s.made, s.met, s.evictions)
		})
	}
}
