// SPDX-License-Identifier: Apache-2.0

package violation

import (
	"cmp"
	"slices"
	"time"
)

// Memory is what is remembered from one look to the next. The zero value has seen nothing.
type Memory struct {
	cases map[string]state
	// past and silent count the looks in a row at which a process was past the library, or without a figure.
	past, silent map[sight]int
	// blind counts those at which a device was not to be seen.
	blind map[string]int
}

// sight is a process on a device.
type sight struct {
	id     PID
	device string
}

// state is what is remembered of a group.
type state struct {
	// limit is the highest in force since what is held was last within the one in force; present is that of the last look.
	limit, present uint64
	// over and past count the looks in a row at which it was above its limit, or had a process past the library; quiet those
	// since it had neither.
	over, past, quiet int
	// finding is what was found; nil where nothing is wrong.
	finding *Finding
}

// Highest are the limits that were in force and are above the present ones, by what they were in force for: what is worth
// remembering when this process ends.
func (m Memory) Highest() map[string]uint64 {
	highest := map[string]uint64{}
	for key, s := range m.cases {
		if s.limit > s.present {
			highest[key] = s.limit
		}
	}
	return highest
}

// Remember is the memory of a process that knows what another has remembered.
func Remember(highest map[string]uint64) Memory {
	m := Memory{cases: map[string]state{}}
	for key, limit := range highest {
		m.cases[key] = state{limit: limit}
	}
	return m
}

// Judge judges one look.
func Judge(before Memory, l Look, now time.Time) (Memory, Findings) {
	after := count(before, l)
	var found []Finding
	told := map[Share]bool{}
	for _, g := range groups(l) {
		key := g.key()
		s := before.cases[key]
		if _, blind := l.Blind[g.device]; !blind {
			s = s.judge(sumOf(after, g, l), g, now)
		} else if s.finding != nil {
			// Nobody can say that it is over, nor whom to end.
			s.finding = s.finding.atRest()
		}
		after.cases[key] = s
		if s.finding != nil && !told[s.finding.Share] {
			told[s.finding.Share] = true
			found = append(found, *s.finding)
		}
	}
	slices.SortStableFunc(found, func(a, b Finding) int {
		return cmp.Or(a.Since.Compare(b.Since), a.Share.compare(b.Share))
	})
	return after, Findings{Violations: found, Unverified: unverified(after, l)}
}

// count counts at how many looks each process and device was seen to be amiss.
func count(before Memory, l Look) Memory {
	after := Memory{cases: map[string]state{}, past: map[sight]int{}, silent: map[sight]int{}, blind: map[string]int{}}
	for _, p := range l.Processes {
		at := sight{id: p.ID, device: p.Device}
		if p.past() {
			after.past[at] = before.past[at] + 1
		}
		if !p.Figure {
			after.silent[at] = before.silent[at] + 1
		}
	}
	for device := range l.Blind {
		after.blind[device] = before.blind[device] + 1
	}
	return after
}

// past is true where the library does not know a process that has a share.
func (p Process) past() bool { return len(p.Shares) > 0 && !p.Registered && !p.Unclear }

// sum is a group at one look.
type sum struct {
	held, limit, overhead uint64
	registered            int
	// all are its processes, past those that the library does not know, certain those of them that were seen before.
	all, past, certain []Process
}

func sumOf(after Memory, g group, l Look) sum {
	var s sum
	for _, grant := range l.Grants {
		if grant.Device == g.device && slices.Contains(g.shares, grant.Share) {
			s.limit += grant.Limit
			s.overhead = max(s.overhead, grant.Overhead)
		}
	}
	for _, p := range l.Processes {
		if !g.within(p) {
			continue
		}
		s.all = append(s.all, p)
		s.held += p.Bytes
		if p.Registered && p.Figure {
			s.registered++
		}
		// One that has a part of the group's shares only is past the library in the group of these.
		if p.past() && g.same(p) {
			s.past = append(s.past, p)
			if after.past[sight{id: p.ID, device: p.Device}] >= Looks {
				s.certain = append(s.certain, p)
			}
		}
	}
	for _, list := range [][]Process{s.past, s.certain} {
		slices.SortStableFunc(list, func(a, b Process) int { return cmp.Compare(b.Bytes, a.Bytes) })
	}
	return s
}

// judge is what becomes of a group with another look.
func (s state) judge(now sum, g group, at time.Time) state {
	after := state{limit: now.limit, present: now.limit, quiet: s.quiet + 1}
	if now.held > now.limit {
		after.limit = max(now.limit, s.limit)
	}
	if now.held > after.limit+margin(after.limit, now.overhead, now.registered) {
		after.over = s.over + 1
	}
	if len(now.past) > 0 {
		after.past = s.past + 1
	}
	if after.past >= churn {
		now.certain = now.past // they come and go too fast to be seen twice
	}
	f := &Finding{
		Share: g.shares[0], Device: g.device, Held: now.held, Limit: after.limit, Unregistered: now.certain, Since: at,
	}
	switch {
	case after.over >= Looks:
		f.Reason, f.Offenders, f.Pods, after.quiet = OverLimit, now.all, podsOf(now.all), 0
	case len(now.certain) > 0:
		f.Reason, f.Offenders, f.Pods, after.quiet = UnregisteredProcess, now.certain, podsOf(now.certain), 0
	case s.finding != nil && after.quiet < Looks:
		f = s.finding.atRest()
	default:
		return after
	}
	if s.finding != nil {
		f.Since = s.finding.Since
	}
	after.finding = f
	return after
}

// atRest is a finding that this look does not show.
func (f *Finding) atRest() *Finding {
	rest := *f
	rest.Offenders = nil
	return &rest
}

// podsOf are the pods of processes, each once.
func podsOf(processes []Process) []string {
	var pods []string
	for _, p := range processes {
		if p.Pod != "" && !slices.Contains(pods, p.Pod) {
			pods = append(pods, p.Pod)
		}
	}
	return pods
}

// unverified are those that had no figure at enough looks.
func unverified(after Memory, l Look) []Unverified {
	var found []Unverified
	for _, g := range l.Grants {
		if why, blind := l.Blind[g.Device]; blind && after.blind[g.Device] >= Looks {
			found = append(found, Unverified{Share: g.Share, Device: g.Device, Why: why})
		}
	}
	for _, p := range l.Processes {
		if p.Figure || after.silent[sight{id: p.ID, device: p.Device}] < Looks {
			continue
		}
		u := Unverified{Device: p.Device, Process: p}
		if len(p.Shares) > 0 {
			u.Share = p.Shares[0]
		}
		found = append(found, u)
	}
	return found
}
