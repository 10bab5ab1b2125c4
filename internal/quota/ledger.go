// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// ReservationTTL is when a reservation expires: longer than the API server may take to store an object after the
// verdict on it, which is 34 seconds.
const ReservationTTL = 35 * time.Second

// Ledger is a GPULedger as decisions see it. Its methods change it in place; whoever tries something out clones it first.
type Ledger struct {
	// Name is the object's name.
	Name string
	// Namespaces are the entries by namespace.
	Namespaces map[string]Entry
	// Reservations are the allocations under way, by the claim's UID.
	Reservations map[string]Reservation
}

// Entry is what one namespace holds.
type Entry struct {
	// Version is the version of the list of claims that was counted; "" where none was.
	Version string
	// Counted is what its allocated claims cost.
	Counted Charges
	// Unknown is how many devices of allocated claims nothing describes.
	Unknown int32
	// Wanted is what it waits for within its guarantee; nil for nothing.
	Wanted *Wanted
	// MovedTo is the ledger that judges the namespace instead; "" where this one does.
	MovedTo string
}

// Wanted is what a namespace waits for within its guarantee.
type Wanted struct {
	// Since is when the first of its pods began to wait.
	Since time.Time
	// Until is when its precedence over others that wait within their guarantees ends.
	Until time.Time
	// Charges are the amounts.
	Charges Charges
}

// Reservation is the cost of an allocation that was allowed and that no count has seen yet.
type Reservation struct {
	// Namespace and Name are the claim's.
	Namespace, Name string
	// Version is the claim's resourceVersion that the allocation was to be added to.
	Version string
	// Expiry is when the API server can no longer store the allocation: a live look after it ends the reservation.
	Expiry time.Time
	// Charges is the cost.
	Charges Charges
}

// NewLedger is an empty ledger.
func NewLedger(name string) *Ledger {
	return &Ledger{Name: name, Namespaces: map[string]Entry{}, Reservations: map[string]Reservation{}}
}

// Clone is a copy that can be changed.
func (l *Ledger) Clone() *Ledger {
	cloned := NewLedger(l.Name)
	for name, entry := range l.Namespaces {
		entry.Counted = entry.Counted.Clone()
		if entry.Wanted != nil {
			entry.Wanted = ptr.To(*entry.Wanted)
			entry.Wanted.Charges = entry.Wanted.Charges.Clone()
		}
		cloned.Namespaces[name] = entry
	}
	for uid, reservation := range l.Reservations {
		reservation.Charges = reservation.Charges.Clone()
		cloned.Reservations[uid] = reservation
	}
	return cloned
}

// ReadLedger reads an object.
func ReadLedger(object *v1alpha1.GPULedger) *Ledger {
	ledger := NewLedger(object.Name)
	if object.Spec == nil {
		return ledger
	}
	for i := range object.Spec.Namespaces {
		from := &object.Spec.Namespaces[i]
		entry := Entry{
			Version: from.CountedVersion, Counted: readCharges(from.Counted),
			Unknown: ptr.Deref(from.Unknown, 0), MovedTo: from.MovedTo,
		}
		if len(from.Wanted.Charges) > 0 {
			entry.Wanted = &Wanted{
				Since: timeOf(from.Wanted.Since), Until: timeOf(from.Wanted.Until), Charges: readCharges(from.Wanted.Charges),
			}
		}
		ledger.Namespaces[from.Name] = entry
	}
	for i := range object.Spec.Reservations {
		from := &object.Spec.Reservations[i]
		ledger.Reservations[from.UID] = Reservation{
			Namespace: from.Namespace, Name: from.Name, Version: from.Version,
			Expiry: timeOf(from.Expiry), Charges: readCharges(from.Charges),
		}
	}
	return ledger
}

// Spec writes the ledger as an object's spec, in a fixed order.
func (l *Ledger) Spec() *v1alpha1.GPULedgerSpec {
	spec := &v1alpha1.GPULedgerSpec{}
	for _, name := range slices.Sorted(maps.Keys(l.Namespaces)) {
		entry := l.Namespaces[name]
		written := v1alpha1.LedgerNamespace{
			Name: name, CountedVersion: entry.Version, Counted: writeCharges(entry.Counted), MovedTo: entry.MovedTo,
		}
		if entry.Unknown > 0 {
			written.Unknown = ptr.To(entry.Unknown)
		}
		if entry.Wanted != nil && !entry.Wanted.Charges.Zero() {
			written.Wanted = v1alpha1.LedgerWanted{
				Since: microTime(entry.Wanted.Since), Until: microTime(entry.Wanted.Until), Charges: writeCharges(entry.Wanted.Charges),
			}
		}
		spec.Namespaces = append(spec.Namespaces, written)
	}
	for _, uid := range slices.Sorted(maps.Keys(l.Reservations)) {
		r := l.Reservations[uid]
		spec.Reservations = append(spec.Reservations, v1alpha1.LedgerReservation{
			UID: uid, Namespace: r.Namespace, Name: r.Name, Version: r.Version,
			Expiry: microTime(r.Expiry), Charges: writeCharges(r.Charges),
		})
	}
	return spec
}

func readCharges(from []v1alpha1.LedgerCharge) Charges {
	charges := Charges{}
	for i := range from {
		charges.Add(from[i].Pool, Amounts(from[i].Amounts))
	}
	return charges
}

// writeCharges leaves out what is 0.
func writeCharges(charges Charges) []v1alpha1.LedgerCharge {
	var written []v1alpha1.LedgerCharge
	for pool, amounts := range charges {
		named := maps.Clone(amounts)
		maps.DeleteFunc(named, func(_ string, value int64) bool { return value == 0 })
		if len(named) > 0 {
			written = append(written, v1alpha1.LedgerCharge{Pool: pool, Amounts: named})
		}
	}
	slices.SortFunc(written, func(a, b v1alpha1.LedgerCharge) int { return cmp.Or(strings.Compare(a.Pool, b.Pool)) })
	return written
}

func timeOf(t *metav1.MicroTime) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

// microTime rounds up: what is written never ends before what was meant.
func microTime(t time.Time) *metav1.MicroTime {
	written := t.Truncate(time.Microsecond)
	if written.Before(t) {
		written = written.Add(time.Microsecond)
	}
	return &metav1.MicroTime{Time: written}
}
