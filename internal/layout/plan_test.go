// SPDX-License-Identifier: Apache-2.0

package layout_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/internal/layout"
)

func at(profile string, start int) gpu.Placement {
	return gpu.Placement{Profile: profile, Start: start}
}

func idle(profile string, start int) layout.Instance {
	return layout.Instance{Placement: at(profile, start)}
}

func used(profile string, start int) layout.Instance {
	return layout.Instance{Placement: at(profile, start), InUse: true}
}

func TestPlan(t *testing.T) {
	cases := []struct {
		name    string
		current []layout.Instance
		wanted  []layout.Count
		want    layout.Change
	}{
		{
			name: "a day's sevenths on an empty GPU", wanted: []layout.Count{many(7, "1g.10gb")},
			want: layout.Change{Create: []gpu.Placement{
				at("1g.10gb", 0), at("1g.10gb", 1), at("1g.10gb", 2), at("1g.10gb", 3), at("1g.10gb", 4), at("1g.10gb", 5), at("1g.10gb", 6),
			}},
		},
		{
			name: "the first small ones leave room for large ones", wanted: []layout.Count{many(3, "1g.10gb")},
			want: layout.Change{Create: []gpu.Placement{at("1g.10gb", 4), at("1g.10gb", 5), at("1g.10gb", 6)}},
		},
		{
			name:    "what is added goes beside what is there",
			current: []layout.Instance{used("1g.10gb", 4), used("1g.10gb", 6)},
			wanted:  []layout.Count{many(2, "1g.10gb"), one("4g.40gb")},
			want: layout.Change{
				Keep:   []gpu.Placement{at("1g.10gb", 4), at("1g.10gb", 6)},
				Create: []gpu.Placement{at("4g.40gb", 0)},
			},
		},
		{
			name:    "an idle one goes before one in use",
			current: []layout.Instance{idle("3g.40gb", 0), used("3g.40gb", 4)},
			wanted:  []layout.Count{one("3g.40gb"), one("2g.20gb")},
			want: layout.Change{
				Keep:    []gpu.Placement{at("3g.40gb", 4)},
				Destroy: []gpu.Placement{at("3g.40gb", 0)},
				Create:  []gpu.Placement{at("2g.20gb", 0)},
			},
		},
		{
			name:    "two idle ones go rather than one in use",
			current: []layout.Instance{idle("1g.10gb", 0), idle("1g.10gb", 1), used("1g.10gb", 4)},
			wanted:  []layout.Count{many(3, "1g.10gb"), one("4g.40gb")},
			want: layout.Change{
				Keep:    []gpu.Placement{at("1g.10gb", 4)},
				Destroy: []gpu.Placement{at("1g.10gb", 0), at("1g.10gb", 1)},
				Create:  []gpu.Placement{at("4g.40gb", 0), at("1g.10gb", 5), at("1g.10gb", 6)},
			},
		},
		{
			name:    "one in use that blocks the only place must drain",
			current: []layout.Instance{used("1g.10gb", 0), used("1g.10gb", 6)},
			wanted:  []layout.Count{many(2, "1g.10gb"), one("4g.40gb")},
			want: layout.Change{
				Keep:      []gpu.Placement{at("1g.10gb", 6)},
				Destroy:   []gpu.Placement{at("1g.10gb", 0)},
				MustDrain: []gpu.Placement{at("1g.10gb", 0)},
				Create:    []gpu.Placement{at("4g.40gb", 0), at("1g.10gb", 4)},
			},
		},
		{
			name:    "of idle ones too many the tidier stay",
			current: []layout.Instance{idle("1g.10gb", 0), idle("1g.10gb", 4), idle("1g.10gb", 6)},
			wanted:  []layout.Count{many(2, "1g.10gb")},
			want: layout.Change{
				Keep:    []gpu.Placement{at("1g.10gb", 4), at("1g.10gb", 6)},
				Destroy: []gpu.Placement{at("1g.10gb", 0)},
			},
		},
		{
			name:    "lines of one profile add up, and what is there is enough",
			current: []layout.Instance{used("2g.20gb", 0), idle("2g.20gb", 2)},
			wanted:  []layout.Count{one("2g.20gb"), one("2g.20gb")},
			want:    layout.Change{Keep: []gpu.Placement{at("2g.20gb", 0), at("2g.20gb", 2)}},
		},
		{
			name:    "the night's whole GPU takes everything",
			current: []layout.Instance{idle("1g.10gb", 0), used("1g.10gb", 6)},
			wanted:  []layout.Count{one("7g.80gb")},
			want: layout.Change{
				Destroy:   []gpu.Placement{at("1g.10gb", 0), at("1g.10gb", 6)},
				MustDrain: []gpu.Placement{at("1g.10gb", 6)},
				Create:    []gpu.Placement{at("7g.80gb", 0)},
			},
		},
		{
			name:    "an empty layout clears the GPU",
			current: []layout.Instance{idle("1g.10gb", 0)},
			want:    layout.Change{Destroy: []gpu.Placement{at("1g.10gb", 0)}},
		},
	}
	board := boards(t)["h100-80gb"]
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			got, err := layout.Plan(board, tc.current, tc.wanted)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("change (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDiff(t *testing.T) {
	current := []layout.Instance{used("3g.40gb", 0), idle("1g.10gb", 4), used("1g.10gb", 6)}
	target := []gpu.Placement{at("1g.10gb", 6), at("1g.10gb", 5), at("4g.40gb", 0)}
	want := layout.Change{
		Keep:      []gpu.Placement{at("1g.10gb", 6)},
		Destroy:   []gpu.Placement{at("3g.40gb", 0), at("1g.10gb", 4)},
		Create:    []gpu.Placement{at("4g.40gb", 0), at("1g.10gb", 5)},
		MustDrain: []gpu.Placement{at("3g.40gb", 0)},
	}
	if diff := cmp.Diff(want, layout.Diff(current, target), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("change (-want +got):\n%s", diff)
	}
}
