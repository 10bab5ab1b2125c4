// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// racing is claims of one namespace whose allocations are stored late or never, counted from looks of any age.
type racing struct {
	rand    *rand.Rand
	now     time.Time
	version int
	ledger  *Ledger
	claims  []racingClaim
	stores  []store
	looks   []Seen
}

type racingClaim struct {
	version int
	holds   int64
}

// store is an allocation that was allowed and is not stored yet.
type store struct {
	at      time.Time
	claim   int
	version int
	gpus    int64
}

func (r *racing) step() {
	r.now = r.now.Add(time.Second)
	r.arrive()
	i := r.rand.IntN(len(r.claims))
	claim := &r.claims[i]
	switch {
	case claim.holds > 0 && r.rand.IntN(4) == 0: // freed
		r.version++
		claim.holds, claim.version = 0, r.version
	case claim.holds == 0 && r.rand.IntN(8) == 0: // changed otherwise
		r.version++
		claim.version = r.version
	case claim.holds == 0:
		r.allow(i, 1+r.rand.Int64N(4))
	}
	r.looks = append(r.looks, r.look())
}

func (r *racing) allow(claim int, gpus int64) {
	version := r.claims[claim].version
	r.ledger.Reserve(Ask{
		UID: strconv.Itoa(claim), Namespace: "a", Version: strconv.Itoa(version), Charges: Charges{"p": {"gpus": gpus}},
	}, r.now)
	if r.rand.IntN(4) > 0 { // else somebody else refuses it
		r.stores = append(r.stores, store{r.now.Add(time.Duration(r.rand.IntN(35)) * time.Second), claim, version, gpus})
	}
}

// arrive stores what is due, where the claim is still as it was judged.
func (r *racing) arrive() {
	var later []store
	for _, s := range r.stores {
		claim := &r.claims[s.claim]
		switch {
		case s.at.After(r.now):
			later = append(later, s)
		case claim.version == s.version:
			r.version++
			claim.version, claim.holds = r.version, s.gpus
		}
	}
	r.stores = later
}

func (r *racing) look() Seen {
	seen := Seen{Version: strconv.Itoa(r.version), Namespaces: []string{"a"}}
	for i, claim := range r.claims {
		seen.Claims = append(seen.Claims, SeenClaim{
			UID: strconv.Itoa(i), Namespace: "a", Version: strconv.Itoa(claim.version), Charges: Charges{"p": {"gpus": claim.holds}},
		})
	}
	return seen
}

func (r *racing) holds() int64 {
	var sum int64
	for _, claim := range r.claims {
		sum += claim.holds
	}
	return sum
}

// settle looks live where reservations have expired, sometimes.
func (r *racing) settle() {
	overdue, _ := r.ledger.Overdue(r.now)
	if len(overdue) == 0 || r.rand.IntN(3) > 0 {
		return
	}
	seen := r.look()
	seen.Live = true
	var stale *StaleError
	if err := r.ledger.Recount(seen, r.now); err != nil && !errors.As(err, &stale) {
		panic(err)
	}
}

// TestUsedNeverReadsLow counts from late looks while allocations are stored up to 34 seconds after their verdict, or never:
// what the ledger says is never less than what is allocated, and exactly that once nothing is under way.
func TestUsedNeverReadsLow(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			r := &racing{
				now: start(), ledger: NewLedger("namespace-a"), claims: make([]racingClaim, 12),
				rand: rand.New(rand.NewPCG(seed, 7)), //nolint:gosec // a run that can be repeated needs a seed
			}
			for i := range r.claims {
				r.version++
				r.claims[i].version = r.version
			}
			for step := range 5000 {
				r.step()
				if r.rand.IntN(3) == 0 {
					seen := r.looks[len(r.looks)-1-r.rand.IntN(min(len(r.looks), 15))]
					var stale *StaleError
					if err := r.ledger.Recount(seen, r.now); err != nil && !errors.As(err, &stale) {
						t.Fatal(err)
					}
				}
				r.settle()
				if used, holds := r.ledger.Used("a", nil)["gpus"], r.holds(); r.ledger.Namespaces["a"].Version != "" && used < holds {
					t.Fatalf("step %d: %d are held, the ledger says %d", step, holds, used)
				}
			}
			r.now = r.now.Add(ReservationTTL + time.Second)
			r.arrive()
			last := r.look()
			last.Live = true
			if err := r.ledger.Recount(last, r.now); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(r.holds(), r.ledger.Used("a", nil)["gpus"]); diff != "" {
				t.Errorf("in the end (-want +got):\n%s", diff)
			}
		})
	}
}
