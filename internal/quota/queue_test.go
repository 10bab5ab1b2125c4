// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// pod is a waiting pod of namespace a, made so many seconds after the start.
func pod(name string, priority int32, after int, cost Cost) Pod {
	return Pod{UID: name, Namespace: "a", Name: name, Priority: priority, Since: start().Add(time.Duration(after) * time.Second), Cost: cost}
}

func in(namespace string, p Pod) Pod {
	p.Namespace = namespace
	return p
}

func TestQueue(t *testing.T) {
	gpus := func(n string) Charges { return inPool("p", "gpus", n) }
	one := domainOf(makeQuota("a", "main", hard("gpus", "4")))
	apart := domainOf(makeQuota("a", "main", ofPools("p"), hard("gpus", "4")), makeQuota("a", "other", ofPools("q"), hard("gpus", "4")))
	cohort := domainOf(
		makeQuota("a", "main", ofPools("p"), inCohort("c"), hard("gpus", "8"), guaranteed("gpus", "4")),
		makeQuota("b", "main", ofPools("p"), inCohort("c"), hard("gpus", "8"), guaranteed("gpus", "4")),
	)
	tests := []struct {
		name     string
		domain   *Domain
		held     map[string]Charges
		underWay []Pod
		waiting  []Pod
		want     []string
	}{
		{
			name: "priority comes before age, age before name", domain: one, held: map[string]Charges{"a": gpus("4")},
			waiting: []Pod{pod("c", 0, 1, gpus("1")), pod("b", 0, 1, gpus("1")), pod("old", 0, 0, gpus("1")), pod("high", 5, 9, gpus("1"))},
			want:    []string{"high 1 AboveHard", "old 2", "b 3", "c 4"},
		},
		{
			name: "pods are released while there is room", domain: one,
			waiting: []Pod{pod("1", 0, 1, gpus("2")), pod("2", 0, 2, gpus("2")), pod("3", 0, 3, gpus("1"))},
			want:    []string{"1 released", "2 released", "3 1 AboveHard"},
		},
		{
			name: "a small pod does not overtake a large one", domain: one, held: map[string]Charges{"a": gpus("2")},
			waiting: []Pod{pod("large", 0, 1, gpus("3")), pod("small", 0, 2, gpus("1"))},
			want:    []string{"large 1 AboveHard", "small 2"},
		},
		{
			name: "pods that were let go count before they hold anything", domain: one, underWay: []Pod{pod("0", 0, 0, gpus("3"))},
			waiting: []Pod{pod("1", 0, 1, gpus("2"))}, want: []string{"1 1 AboveHard"},
		},
		{
			name: "a pod that could never fit keeps nobody waiting", domain: one,
			waiting: []Pod{pod("huge", 9, 0, gpus("5")), pod("small", 0, 2, gpus("1"))},
			want:    []string{"huge 1 AboveHard never", "small released"},
		},
		{
			name: "a pod that waits for one quota keeps nobody waiting of another", domain: apart, held: map[string]Charges{"a": gpus("4")},
			waiting: []Pod{pod("p", 0, 1, gpus("1")), pod("q", 0, 2, inPool("q", "gpus", "1"))},
			want:    []string{"p 1 AboveHard", "q released"},
		},
		{
			name: "a pod in both keeps its place in both", domain: apart, held: map[string]Charges{"a": gpus("4")},
			waiting: []Pod{
				pod("both", 0, 1, Charges{"p": amounts("gpus", "1"), "q": amounts("gpus", "1")}), pod("q", 0, 2, inPool("q", "gpus", "1")),
			},
			want: []string{"both 1 AboveHard", "q 2"},
		},
		{
			name: "a pod that finds nothing to borrow lets those within the guarantee pass, but no borrower", domain: cohort,
			held:    map[string]Charges{"a": gpus("2"), "b": gpus("4")},
			waiting: []Pod{pod("borrower", 0, 1, gpus("4")), pod("within", 0, 2, gpus("1")), in("b", pod("b", 0, 3, gpus("1")))},
			want:    []string{"borrower 1 NothingToBorrow", "within released", "b 1"},
		},
		{
			name: "a pod that waits for what was lent keeps its place", domain: cohort, held: map[string]Charges{"b": gpus("6")},
			waiting: []Pod{pod("1", 0, 1, gpus("3")), pod("2", 0, 2, gpus("1"))},
			want:    []string{"1 1 WaitsForLent", "2 2"},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, turn := range tc.domain.Queue(holding(tc.domain, tc.held), tc.underWay, tc.waiting, start()) {
				line := turn.Pod.Name
				switch {
				case turn.Release:
					line += " released"
				default:
					line += fmt.Sprintf(" %d", turn.Position)
				}
				if turn.Refusal != nil {
					line += " " + string(turn.Refusal.Reason)
					if turn.Refusal.Never {
						line += " never"
					}
				}
				got = append(got, line)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("turns (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNobodyIsReleasedBeforeTheCount(t *testing.T) {
	domain := domainOf(makeQuota("a", "main", hard("gpus", "4")))
	turns := domain.Queue(NewLedger("x"), nil, []Pod{pod("1", 0, 1, inPool("p", "gpus", "1"))}, start())
	if turns[0].Release || turns[0].Refusal.Reason != RefusedUncounted {
		t.Errorf("got %+v", turns[0])
	}
}

func TestStep(t *testing.T) {
	for position, want := range map[int]int{1: 1, 9: 9, 10: 10, 11: 20, 20: 20, 21: 30, 995: 1000} {
		if got := Step(position); got != want {
			t.Errorf("position %d: want %d, got %d", position, want, got)
		}
	}
}
