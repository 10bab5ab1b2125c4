// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// holder is a pod of namespace b that holds memory since so many seconds after the start.
func holder(name string, priority int32, after int, memory string) Holder {
	return Holder{
		Namespace: "b", Pods: []string{name}, Priority: priority,
		Since: start().Add(time.Duration(after) * time.Second), Charges: inPool("p", "memory", memory, "gpus", "1"),
	}
}

func of(namespace string, h Holder) Holder {
	h.Namespace = namespace
	return h
}

func ending(h Holder) Holder {
	h.Ending = true
	return h
}

func TestReclaim(t *testing.T) {
	memory := func(gi string) Charges { return inPool("p", "memory", gi, "gpus", "1") }
	domain := domainOf(
		makeQuota("a", "main", ofPools("p"), inCohort("c"), hard("memory", "100"), guaranteed("memory", "60")),
		makeQuota("b", "main", ofPools("p"), inCohort("c"), hard("memory", "100"), guaranteed("memory", "20")),
		makeQuota("c", "main", ofPools("p"), inCohort("c"), hard("memory", "100"), guaranteed("memory", "20")),
	)
	tests := []struct {
		name    string
		holders []Holder
		idle    map[string]Charges
		waiting []Pod
		want    []string
		wanted  map[string]Charges
	}{
		{
			name:    "nobody is evicted where there is room, and it is kept",
			holders: []Holder{holder("1", 0, 0, "30")}, waiting: []Pod{pod("w", 0, 0, memory("60"))},
			wanted: map[string]Charges{"a": memory("60")},
		},
		{
			name:    "the newest of the lowest priority goes first",
			holders: []Holder{holder("kept", 9, 0, "20"), holder("old", 1, 1, "20"), holder("new", 1, 2, "20"), holder("high", 5, 3, "20")},
			waiting: []Pod{pod("w", 0, 0, memory("40"))}, want: []string{"b/new for w"}, wanted: map[string]Charges{"a": memory("40")},
		},
		{
			name:    "as many go as are needed, and none that turns out not to be",
			holders: []Holder{holder("kept", 9, 0, "20"), holder("large", 1, 1, "50"), holder("small", 1, 2, "5")},
			waiting: []Pod{pod("w", 0, 0, memory("60"))}, want: []string{"b/large for w"}, wanted: map[string]Charges{"a": memory("60")},
		},
		{
			name:    "who would borrow gets nobody evicted",
			holders: []Holder{holder("1", 0, 0, "20"), holder("2", 0, 1, "70")},
			waiting: []Pod{pod("w", 0, 0, memory("61")), in("b", pod("again", 0, 0, memory("10")))}, wanted: map[string]Charges{},
		},
		{
			name:    "covered pods stay, also where claims that no pod uses keep somebody waiting",
			holders: []Holder{holder("1", 0, 0, "20")}, idle: map[string]Charges{"c": memory("40")},
			waiting: []Pod{pod("w", 0, 0, memory("60"))}, wanted: map[string]Charges{"a": memory("60")},
		},
		{
			name:    "claims that no pod uses take the guarantee first, since nobody can evict them",
			holders: []Holder{of("c", holder("1", 9, 0, "20"))}, idle: map[string]Charges{"c": memory("40")},
			waiting: []Pod{pod("w", 0, 0, memory("60"))}, want: []string{"c/1 for w"}, wanted: map[string]Charges{"a": memory("60")},
		},
		{
			name:    "who is asked to end counts as gone",
			holders: []Holder{holder("1", 0, 0, "20"), ending(holder("2", 0, 1, "60")), holder("3", 0, 2, "20")},
			waiting: []Pod{pod("w", 0, 0, memory("60"))}, wanted: map[string]Charges{"a": memory("60")},
		},
		{
			name:    "several that wait are served in their order, each with victims of its own",
			holders: []Holder{holder("1", 0, 0, "20"), holder("2", 0, 1, "30"), holder("3", 0, 2, "40")},
			waiting: []Pod{pod("late", 0, 2, memory("20")), pod("first", 0, 1, memory("40"))},
			want:    []string{"b/3 for first", "b/2 for late"}, wanted: map[string]Charges{"a": inPool("p", "memory", "60", "gpus", "2")},
		},
		{
			name:    "a pod larger than its namespace's guarantee is borrowed whole",
			holders: []Holder{holder("1", 0, 0, "90")}, waiting: []Pod{pod("w", 0, 0, memory("60"))},
			want: []string{"b/1 for w"}, wanted: map[string]Charges{"a": memory("60")},
		},
		{
			name:    "a newer small pod is covered beside an older one that is not",
			holders: []Holder{holder("large", 0, 0, "70"), holder("small", 0, 1, "20")}, waiting: []Pod{pod("w", 0, 0, memory("30"))},
			want: []string{"b/large for w"}, wanted: map[string]Charges{"a": memory("30")},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			held := map[string]Charges{}
			maps.Copy(held, tc.idle)
			for _, h := range tc.holders {
				if held[h.Namespace] == nil {
					held[h.Namespace] = Charges{}
				}
				held[h.Namespace].AddAll(h.Charges)
			}
			l := holding(domain, held)
			plan := domain.Reclaim(l, tc.holders, tc.waiting, start(), time.Minute)
			var got []string
			for _, victim := range plan.Victims {
				got = append(got, victim.key()+" for "+victim.For.Name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("victims (-want +got):\n%s", diff)
			}
			wanted := map[string]Charges{}
			for namespace, w := range plan.Wanted {
				wanted[namespace] = w.Charges
			}
			if diff := cmp.Diff(tc.wanted, wanted); diff != "" {
				t.Errorf("wanted (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPrecedenceEndsWhereNoRoomIsOnItsWay(t *testing.T) {
	domain := domainOf(
		makeQuota("a", "main", ofPools("p"), inCohort("c"), hard("memory", "100"), guaranteed("memory", "60")),
		makeQuota("b", "main", ofPools("p"), inCohort("c"), hard("memory", "100"), guaranteed("memory", "40")),
	)
	waiting := []Pod{pod("w", 0, 0, inPool("p", "memory", "60"))}
	borrowed := holder("1", 0, 0, "60")
	until := func(earlier time.Time, holders ...Holder) time.Time {
		l := holding(domain, map[string]Charges{"b": inPool("p", "memory", "60")})
		l.Want("a", &Wanted{Since: start(), Until: earlier, Charges: inPool("p", "memory", "60")})
		return domain.Reclaim(l, holders, waiting, start().Add(time.Hour), time.Minute).Wanted["a"].Until
	}
	if want, got := start().Add(time.Hour+time.Minute), until(start(), ending(borrowed)); !got.Equal(want) {
		t.Errorf("with room on its way: want %s, got %s", want, got)
	}
	if want, got := start(), until(start()); !got.Equal(want) {
		t.Errorf("with nobody to evict: want %s, got %s", want, got)
	}
}
