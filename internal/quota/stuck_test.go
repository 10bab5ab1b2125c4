// SPDX-License-Identifier: Apache-2.0

package quota

import "testing"

// TestAPodThatIsStuck: it keeps its place in its own namespace, and nobody of another waits for it.
func TestAPodThatIsStuck(t *testing.T) {
	cohort := domainOf(
		makeQuota("a", "main", ofPools("p"), inCohort("c"), hard("gpus", "4"), guaranteed("gpus", "1")),
		makeQuota("b", "main", ofPools("p"), inCohort("c"), hard("gpus", "4"), guaranteed("gpus", "3")),
	)
	ledger := NewLedger("cohort-c")
	ledger.Namespaces["a"], ledger.Namespaces["b"] = Entry{Version: "1"}, Entry{Version: "1"}
	stuck := pod("stuck", 0, 0, inPool("p", "gpus", "4"))
	one := inPool("p", "gpus", "1")
	waiting := []Pod{pod("same", 0, 1, one), in("b", pod("within", 0, 2, one)), in("b", pod("borrower", 0, 3, inPool("p", "gpus", "3")))}
	for _, tc := range []struct {
		name  string
		stuck bool
		want  map[string]bool
	}{
		{
			name: "while it may still get its devices borrowers wait for it, and no pod within its namespace's guarantee",
			want: map[string]bool{"within": true},
		},
		{name: "then only its own namespace", stuck: true, want: map[string]bool{"within": true, "borrower": true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			stuck.Stuck = tc.stuck
			for _, turn := range cohort.Queue(ledger, []Pod{stuck}, waiting, start()) {
				if turn.Release != tc.want[turn.Pod.Name] {
					t.Errorf("%s: released %v, want %v (%v)", turn.Pod.Name, turn.Release, tc.want[turn.Pod.Name], turn.Refusal)
				}
			}
		})
	}
}
