// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// Ask is an allocation that waits for a verdict.
type Ask struct {
	// UID, Namespace and Name are the claim's.
	UID, Namespace, Name string
	// Version is the claim's resourceVersion before the allocation, that of the old object of the update.
	Version string
	// Since is when the claim was made: of several that wait within their guarantees the oldest has precedence.
	Since time.Time
	// Charges is what the allocation costs.
	Charges Charges
}

// Reserve remembers an allocation that a verdict has just allowed. Where one of the same claim is under way already, as
// when a scheduler tries again while the first answer hangs, either may be stored: the larger of each amount is kept.
func (l *Ledger) Reserve(ask Ask, now time.Time) {
	if ask.Charges.Zero() {
		return
	}
	charges := ask.Charges.Clone()
	version := ask.Version
	if under, found := l.Reservations[ask.UID]; found {
		charges = charges.Largest(under.Charges)
		if after(under.Version, version) {
			version = under.Version
		}
	}
	l.Reservations[ask.UID] = Reservation{
		Namespace: ask.Namespace, Name: ask.Name, Version: version, Expiry: now.Add(ReservationTTL), Charges: charges,
	}
}

// Release forgets a reservation of which it is certain that nothing will be stored: the ledger was written, but no
// answer was given and none will be.
func (l *Ledger) Release(uid string) { delete(l.Reservations, uid) }

// hasRoom says whether a namespace may have one more reservation. In a cohort it takes at most half of what the others
// leave, so that none fills the ledger for all.
func (l *Ledger) hasRoom(namespace string, cohort bool) bool {
	own := 0
	for _, r := range l.Reservations {
		if r.Namespace == namespace {
			own++
		}
	}
	others := len(l.Reservations) - own
	if !cohort {
		return own+others < v1alpha1.MaxLedgerReservations
	}
	return 2*own < v1alpha1.MaxLedgerReservations-others
}

func (l *Ledger) reserved(uid string) bool {
	_, found := l.Reservations[uid]
	return found
}

// Overdue are the namespaces with reservations that have expired, and when the next reservation of any namespace expires;
// zero where none is left to. Only a look that was taken live after the expiry ends an expired reservation: until then
// its allocation may have been stored, and not been seen.
func (l *Ledger) Overdue(now time.Time) (namespaces []string, next time.Time) {
	for _, r := range l.Reservations {
		switch {
		case !r.Expiry.After(now):
			namespaces = append(namespaces, r.Namespace)
		case next.IsZero() || r.Expiry.Before(next):
			next = r.Expiry
		}
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces), next
}

// Seen is one look at claims.
type Seen struct {
	// Version is a resourceVersion of claims that the look certainly reflects: that of a live list, or the highest that
	// handlers of the cache's events had been given before it.
	Version string
	// Live is true for a list that the API server itself answered, begun after the time that Recount is given: all that was
	// stored before that time is in the look. Of a look at a cache that cannot be said.
	Live bool
	// Namespaces are those of which the look shows every claim.
	Namespaces []string
	// Claims are the claims.
	Claims []SeenClaim
}

// SeenClaim is a claim as a look shows it.
type SeenClaim struct {
	// UID, Namespace and Version (its resourceVersion) are the claim's.
	UID, Namespace, Version string
	// Charges is what its allocation costs; nothing where it has none.
	Charges Charges
	// Unknown is how many of its devices nothing describes.
	Unknown int32
}

// StaleError says that a look is older than what the ledger has counted already: look again.
type StaleError struct {
	// Namespace is the first for which that is so.
	Namespace string
}

// Error says so.
func (e *StaleError) Error() string {
	return fmt.Sprintf("what namespace %s holds was counted from a newer list already", e.Namespace)
}

// Recount replaces what the namespaces of a look were counted to hold, and settles reservations. It takes only what it
// sees: a reservation ends when the look shows the claim at a later version than the allocation was to be added to, since
// the claim then has the allocation or can no longer get it; when the claim is gone; or when the look was taken live after
// it expired. An older look than the last changes nothing and is a *StaleError. Namespaces that have moved away are left
// alone.
func (l *Ledger) Recount(seen Seen, now time.Time) error {
	for _, name := range seen.Namespaces {
		if entry := l.Namespaces[name]; entry.MovedTo == "" && entry.Version != "" && after(entry.Version, seen.Version) {
			return &StaleError{Namespace: name}
		}
	}
	counted, versions := l.sum(seen)
	maps.Copy(l.Namespaces, counted)
	maps.DeleteFunc(l.Reservations, func(uid string, r Reservation) bool {
		if _, covered := counted[r.Namespace]; !covered {
			return false
		}
		if seen.Live && !r.Expiry.After(now) {
			return true
		}
		if version, shown := versions[uid]; shown {
			return after(version, r.Version)
		}
		return after(seen.Version, r.Version)
	})
	return nil
}

// sum makes the new entries of the namespaces of a look, and lists the versions of the claims in it.
//
// Where nothing describes a device, a namespace keeps at least what it was counted to hold before, and what is reserved for
// a claim with such a device. Without a count before, it stays uncounted.
func (l *Ledger) sum(seen Seen) (counted map[string]Entry, versions map[string]string) {
	counted, versions = map[string]Entry{}, map[string]string{}
	reserved := map[string]Charges{}
	for _, name := range seen.Namespaces {
		if entry := l.Namespaces[name]; entry.MovedTo == "" {
			counted[name] = Entry{Version: seen.Version, Counted: Charges{}, Wanted: entry.Wanted}
			reserved[name] = Charges{}
		}
	}
	for _, claim := range seen.Claims {
		entry, covered := counted[claim.Namespace]
		if !covered {
			continue
		}
		versions[claim.UID] = claim.Version
		entry.Counted.AddAll(claim.Charges)
		entry.Unknown += claim.Unknown
		counted[claim.Namespace] = entry
		if r, found := l.Reservations[claim.UID]; found && claim.Unknown > 0 && after(claim.Version, r.Version) {
			reserved[claim.Namespace].AddAll(r.Charges)
		}
	}
	for name, entry := range counted {
		if entry.Unknown == 0 {
			continue
		}
		before := l.Namespaces[name]
		entry.Counted = entry.Counted.Largest(before.Counted)
		entry.Counted.AddAll(reserved[name])
		if before.Version == "" {
			entry.Version = ""
		}
		counted[name] = entry
	}
	return counted, versions
}

// Want sets what a namespace waits for within its guarantee; nil: nothing.
func (l *Ledger) Want(namespace string, wanted *Wanted) {
	entry, found := l.Namespaces[namespace]
	if !found {
		return
	}
	entry.Wanted = wanted
	l.Namespaces[namespace] = entry
}

// Leave ends judging a namespace here, because its quotas belong to another ledger now. What it holds and has reserved
// stays readable until Forget. The order is: leave here and write, then Join there and write, then forget here.
func (l *Ledger) Leave(namespace, to string) {
	entry := l.Namespaces[namespace]
	entry.MovedTo, entry.Wanted = to, nil
	l.Namespaces[namespace] = entry
}

// Join takes a namespace over from the ledger that it left, with what it holds and has reserved there. Joining twice
// changes nothing more.
func (l *Ledger) Join(namespace string, from *Ledger) {
	entry := l.Namespaces[namespace]
	left := from.Namespaces[namespace]
	if entry.Version == "" || entry.MovedTo != "" || after(left.Version, entry.Version) {
		entry = Entry{Version: left.Version, Counted: left.Counted.Clone(), Unknown: left.Unknown}
	}
	l.Namespaces[namespace] = entry
	for uid, r := range from.Reservations {
		if _, found := l.Reservations[uid]; r.Namespace == namespace && !found {
			r.Charges = r.Charges.Clone()
			l.Reservations[uid] = r
		}
	}
}

// Forget drops a namespace that has moved away, or has no quota any more, with its reservations.
func (l *Ledger) Forget(namespace string) {
	delete(l.Namespaces, namespace)
	maps.DeleteFunc(l.Reservations, func(_ string, r Reservation) bool { return r.Namespace == namespace })
}

// Missing are the namespaces of a domain that were not counted yet: nothing may be allocated in them before.
func (l *Ledger) Missing(domain *Domain) []string {
	return slices.DeleteFunc(domain.Namespaces(), func(name string) bool {
		entry := l.Namespaces[name]
		return entry.Version != "" && entry.MovedTo == ""
	})
}

// after says whether a version is later than another. Versions that cannot be compared are taken as not later, which
// keeps reservations.
func after(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}
