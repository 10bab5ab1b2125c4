// SPDX-License-Identifier: Apache-2.0

package witness

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/quota"
)

// reservation is how long the ledger may say more than is allocated.
const reservation = 35 * time.Second

// slack is what the clocks and the watch of a busy machine may add.
const slack = 2 * time.Second

// Bound is what namespaces may hold together.
type Bound struct {
	// Namespaces share the bound.
	Namespaces []string
	// Most are the amounts; only gpus and memory are counted here.
	Most quota.Amounts
}

// Findings are what was wrong, and what was seen.
type Findings struct {
	// Wrong are sentences; none where all was right.
	Wrong []string
	// Most is the most claims that were allocated at once.
	Most int
	// Allocations is how often a claim became allocated.
	Allocations int
	// LedgerWrites is how many versions of ledgers there were.
	LedgerWrites int
	// StatusLow is the longest that the status of a quota said less than was allocated.
	StatusLow time.Duration
}

// Judge goes through all that was seen, in the order of the API server.
func (w *Witness) Judge(bounds ...Bound) Findings {
	w.mu.Lock()
	records, blind := slices.Clone(w.records), slices.Clone(w.blind)
	w.mu.Unlock()
	slices.SortStableFunc(records, func(a, b record) int { return cmp.Compare(a.version, b.version) })
	r := &replay{
		bounds: bounds, began: w.began, held: map[types.UID]holding{}, ledgers: map[string]*quota.Ledger{},
		low: map[types.UID]time.Time{}, status: map[types.UID]*v1alpha1.GPUQuota{},
	}
	for i := range records {
		r.take(&records[i])
		seen := !slices.ContainsFunc(blind, func(s span) bool { return s.from <= records[i].version && records[i].version <= s.to })
		r.check(records[i].at, seen)
	}
	return r.found
}

// holding is what one claim holds.
type holding struct {
	namespace string
	amounts   quota.Amounts
}

type replay struct {
	bounds  []Bound
	began   time.Time
	held    map[types.UID]holding
	ledgers map[string]*quota.Ledger
	status  map[types.UID]*v1alpha1.GPUQuota
	low     map[types.UID]time.Time
	found   Findings
}

func (r *replay) wrong(format string, args ...any) {
	const enough = 20
	if len(r.found.Wrong) < enough {
		r.found.Wrong = append(r.found.Wrong, fmt.Sprintf(format, args...))
	}
}

func (r *replay) take(rec *record) {
	switch {
	case rec.claim != nil:
		r.takeClaim(rec)
	case rec.ledger != nil && rec.gone:
		delete(r.ledgers, rec.ledger.Name)
	case rec.ledger != nil:
		r.found.LedgerWrites++
		r.ledgers[rec.ledger.Name] = quota.ReadLedger(rec.ledger)
		r.checkExpiries(rec)
	case rec.gone:
		delete(r.status, rec.quota.UID)
	default:
		r.status[rec.quota.UID] = rec.quota
	}
}

func (r *replay) takeClaim(rec *record) {
	_, had := r.held[rec.claim.UID]
	delete(r.held, rec.claim.UID)
	if !rec.gone && rec.claim.Status.Allocation != nil {
		r.held[rec.claim.UID] = holding{namespace: rec.claim.Namespace, amounts: amountsOf(rec.claim)}
		if !had {
			r.found.Allocations++
		}
	}
	r.found.Most = max(r.found.Most, len(r.held))
}

// amountsOf counts shares: what else there is has tests of its own.
func amountsOf(claim *resourceapi.ResourceClaim) quota.Amounts {
	amounts := quota.Amounts{}
	for i := range claim.Status.Allocation.Devices.Results {
		result := &claim.Status.Allocation.Devices.Results[i]
		if result.Driver != v1alpha1.DriverName || ptr.Deref(result.AdminAccess, false) {
			continue
		}
		amounts[v1alpha1.QuotaGPUs]++
		memory := result.ConsumedCapacity[v1alpha1.CapacityMemory]
		amounts[v1alpha1.QuotaMemory] += memory.Value()
	}
	return amounts
}

// checkExpiries holds reservations to their life.
func (r *replay) checkExpiries(rec *record) {
	if rec.ledger.Spec == nil || rec.at.Before(r.began.Add(reservation)) {
		return // older versions than the watch are seen late
	}
	for i := range rec.ledger.Spec.Reservations {
		reserved := &rec.ledger.Spec.Reservations[i]
		if reserved.Expiry.After(rec.at.Add(reservation + slack)) {
			r.wrong("ledger %s at %d keeps a reservation until %s, more than %s from then", rec.ledger.Name, rec.version, reserved.Expiry, reservation)
		}
	}
}

// check looks at the state after a record; at ledgers and quotas only where they were seen.
func (r *replay) check(at time.Time, seen bool) {
	held := map[string]quota.Amounts{}
	for _, h := range r.held {
		held[h.namespace] = held[h.namespace].Plus(h.amounts)
	}
	for _, b := range r.bounds {
		sum := quota.Amounts{}
		for _, namespace := range b.Namespaces {
			sum = sum.Plus(held[namespace])
			if seen {
				r.checkLedgers(namespace, held[namespace], at)
			}
		}
		for name, most := range b.Most {
			if sum[name] > most {
				r.wrong("at %s %v held %d of %s, allowed are %d", at.Format(time.StampMilli), b.Namespaces, sum[name], name, most)
			}
		}
	}
	if seen {
		r.checkStatus(held, at)
	}
}

// checkLedgers holds what ledgers say of a namespace against what it holds.
func (r *replay) checkLedgers(namespace string, held quota.Amounts, at time.Time) {
	for _, ledger := range r.ledgers {
		if entry, found := ledger.Namespaces[namespace]; !found || entry.MovedTo != "" || entry.Version == "" {
			continue
		}
		used := ledger.Used(namespace, nil)
		for name, value := range held {
			if used[name] < value {
				r.wrong("at %s ledger %s said that %s uses %d of %s, but it held %d", at.Format(time.StampMilli), ledger.Name, namespace, used[name], name, value)
			}
		}
	}
}

// checkStatus measures for how long a quota's status says less than is held.
func (r *replay) checkStatus(held map[string]quota.Amounts, at time.Time) {
	for uid, q := range r.status {
		low := false
		if q.Spec.Pools == nil && q.Status.Used != nil {
			used := quota.FromAPI(q.Status.Used)
			for name, value := range held[q.Namespace] {
				reported, named := used[name]
				low = low || (named && reported < value)
			}
		}
		since, was := r.low[uid]
		switch {
		case low && !was:
			r.low[uid] = at
		case !low && was:
			r.found.StatusLow = max(r.found.StatusLow, at.Sub(since))
			delete(r.low, uid)
		}
	}
}
