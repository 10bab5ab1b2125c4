// SPDX-License-Identifier: Apache-2.0

package layout_test

import (
	"errors"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/internal/layout"
)

// TestAPlacementIsFoundWheneverOneExists asks every board for every multiset of its profiles, up to one instance more
// than it can hold.
func TestAPlacementIsFoundWheneverOneExists(t *testing.T) {
	t.Parallel()
	for key, board := range boards(t) {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			b := newBrute(board)
			asked, held := 0, 0
			everyMultiset(board, b.most()+1, func(wanted []layout.Count) {
				asked++
				possible := b.byLayout[keyOf(wanted)] != nil || len(wanted) == 0
				plan, err := layout.Plan(board, nil, wanted)
				var impossible *layout.ImpossibleError
				switch {
				case possible && err != nil:
					t.Errorf("%s: refused (%v), but it can be placed", layout.Describe(wanted), err)
				case possible:
					held++
					checkPlan(t, b, 0, 0, wanted, plan)
				case !errors.As(err, &impossible):
					t.Errorf("%s: got %v and %+v, but it cannot be placed", layout.Describe(wanted), err, plan)
				}
			})
			if want := len(b.byLayout); held != want {
				t.Errorf("%d layouts of %d asked for can be held, want %d", held, asked, want)
			}
			t.Logf("%d of %d layouts can be held", held, asked)
		})
	}
}

// checkPlan checks that a plan leads from what there is to a set of placements that the board can hold, is the wanted
// layout, and touches no more than it must.
func checkPlan(t *testing.T, b *brute, current, inUse uint32, wanted []layout.Count, plan layout.Change) {
	t.Helper()
	keep, ok1 := b.bitsOf(plan.Keep)
	destroy, ok2 := b.bitsOf(plan.Destroy)
	create, ok3 := b.bitsOf(plan.Create)
	drain, ok4 := b.bitsOf(plan.MustDrain)
	if !ok1 || !ok2 || !ok3 || !ok4 {
		t.Errorf("%s: placements that the board does not have, or twice: %+v", layout.Describe(wanted), plan)
		return
	}
	target := keep | create
	switch {
	case keep|destroy != current || keep&destroy != 0:
		t.Errorf("%s: keep and destroy are not what there is: %+v", layout.Describe(wanted), plan)
	case create&current != 0:
		t.Errorf("%s: an instance that is there is made again: %+v", layout.Describe(wanted), plan)
	case drain != destroy&inUse:
		t.Errorf("%s: to drain are not the instances in use that go: %+v", layout.Describe(wanted), plan)
	case !b.holds(target):
		t.Errorf("%s: the board cannot hold %v", layout.Describe(wanted), plan.Target())
	case !layout.Same(layout.Of(plan.Target()), wanted):
		t.Errorf("%s: the plan leads to %s", layout.Describe(wanted), layout.Describe(layout.Of(plan.Target())))
	}
	drained, gone := b.cheapest(current, inUse, keyOf(wanted))
	if len(plan.MustDrain) != drained || len(plan.Destroy) != gone {
		t.Errorf("from %v (in use %v) to %s: %d drained and %d destroyed, %d and %d are enough: %+v",
			b.of(current), b.of(inUse), layout.Describe(wanted), len(plan.MustDrain), len(plan.Destroy), drained, gone, plan)
	}
}

// most is how many instances the board can hold.
func (b *brute) most() int {
	most := 0
	for _, set := range b.sets {
		most = max(most, bits.OnesCount32(set))
	}
	return most
}

// instances are a set of placements as what exists.
func (b *brute) instances(current, inUse uint32) []layout.Instance {
	var instances []layout.Instance
	for i, p := range b.placements {
		if current&(1<<i) != 0 {
			instances = append(instances, layout.Instance{Placement: p, InUse: inUse&(1<<i) != 0})
		}
	}
	return instances
}

// TestNothingIsTouchedNeedlesslyInSmallCases goes from every set of up to two instances, each in use or not, to every
// layout of up to four that each kind of board can hold.
func TestNothingIsTouchedNeedlesslyInSmallCases(t *testing.T) {
	t.Parallel()
	for key, board := range geometries(t) {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			b := newBrute(board)
			var wanted [][]layout.Count
			everyMultiset(board, 4, func(counts []layout.Count) {
				if len(counts) == 0 || b.byLayout[keyOf(counts)] != nil {
					wanted = append(wanted, counts)
				}
			})
			cases := 0
			for _, current := range b.sets {
				if len(b.of(current)) > 2 {
					continue
				}
				for inUse := current; ; inUse = (inUse - 1) & current {
					for _, counts := range wanted {
						cases++
						b.check(t, current, inUse, counts)
					}
					if inUse == 0 {
						break
					}
				}
			}
			t.Logf("%d cases", cases)
		})
	}
}

func (b *brute) check(t *testing.T, current, inUse uint32, wanted []layout.Count) {
	t.Helper()
	plan, err := layout.Plan(b.board, b.instances(current, inUse), wanted)
	if err != nil {
		t.Errorf("from %v to %s: %v", b.of(current), layout.Describe(wanted), err)
		return
	}
	checkPlan(t, b, current, inUse, wanted, plan)
}

// TestNothingIsTouchedNeedlessly goes from sets of any size to layouts of any size, chosen by a seeded generator.
func TestNothingIsTouchedNeedlessly(t *testing.T) {
	t.Parallel()
	for key, board := range boards(t) {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			b := newBrute(board)
			random := rand.New(rand.NewPCG(6, uint64(len(key)))) //nolint:gosec // A seeded generator makes the test repeatable.
			for range 4000 {
				current := b.sets[random.IntN(len(b.sets))]
				inUse := current & random.Uint32()
				wanted := layout.Of(b.of(b.sets[random.IntN(len(b.sets))]))
				b.check(t, current, inUse, wanted)
			}
		})
	}
}

// TestAPlanIsCarriedOutOnce checks that after a change nothing is left to do, and that the order in which things are
// listed says nothing.
func TestAPlanIsCarriedOutOnce(t *testing.T) {
	board := boards(t)["h100-80gb"]
	b := newBrute(board)
	random := rand.New(rand.NewPCG(6, 6)) //nolint:gosec // A seeded generator makes the test repeatable.
	for range 2000 {
		current := b.sets[random.IntN(len(b.sets))]
		instances := b.instances(current, current&random.Uint32())
		wanted := layout.Of(b.of(b.sets[random.IntN(len(b.sets))]))
		first, err := layout.Plan(board, instances, wanted)
		if err != nil {
			t.Fatal(err)
		}
		random.Shuffle(len(instances), func(i, j int) { instances[i], instances[j] = instances[j], instances[i] })
		random.Shuffle(len(wanted), func(i, j int) { wanted[i], wanted[j] = wanted[j], wanted[i] })
		again, err := layout.Plan(board, instances, wanted)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(first, again); diff != "" {
			t.Fatalf("the order of the question changes the answer (-first +shuffled):\n%s", diff)
		}
		set, _ := b.bitsOf(first.Target())
		after, err := layout.Plan(board, b.instances(set, set), wanted)
		if err != nil {
			t.Fatal(err)
		}
		if !after.Nothing() {
			t.Fatalf("after %+v there is still to do: %+v", first, after)
		}
	}
}

// TestInstancesOfOthersGo checks that instances which no layout can have are destroyed, not tripped over.
func TestInstancesOfOthersGo(t *testing.T) {
	board := boards(t)["h100-80gb"]
	current := []layout.Instance{
		{Placement: gpu.Placement{Profile: "1g.99gb", Start: 6}, InUse: true},
		{Placement: gpu.Placement{Profile: "1g.10gb", Start: 7}},
		{Placement: gpu.Placement{Profile: "1g.10gb", Start: 70}},
		{Placement: gpu.Placement{Profile: "1g.10gb", Start: -1}},
	}
	got, err := layout.Plan(board, current, []layout.Count{{Profile: "1g.10gb", Count: 7}})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Create) != 7-len(got.Keep) || len(got.MustDrain) != 1 {
		t.Errorf("got %+v", got)
	}
}
