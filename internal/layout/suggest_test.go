// SPDX-License-Identifier: Apache-2.0

package layout_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-gpu/sluice/internal/layout"
)

func one(profile string) layout.Count         { return layout.Count{Profile: profile, Count: 1} }
func many(n int, profile string) layout.Count { return layout.Count{Profile: profile, Count: n} }

func TestARefusalSaysWhatFits(t *testing.T) {
	cases := []struct {
		name, board string
		wanted      []layout.Count
		want        string
	}{
		{
			name: "a large one too many is replaced by the next smaller", board: "h100-80gb",
			wanted: []layout.Count{many(2, "3g.40gb"), one("2g.20gb")},
			want: "The board cannot be divided into 2 × 3g.40gb, 1 × 2g.20gb: they take 10 memory slices, it has 8; what fits: " +
				"2 × 2g.20gb, 1 × 3g.40gb; or 2 × 3g.40gb; or 1 × 1g.20gb, 1 × 2g.20gb, 1 × 3g.40gb",
		},
		{
			name: "a small one too many is dropped", board: "h100-80gb",
			wanted: []layout.Count{many(8, "1g.10gb")},
			want: "The board cannot be divided into 8 × 1g.10gb: it holds at most 7 × 1g.10gb; what fits: " +
				"7 × 1g.10gb; or 6 × 1g.10gb, 1 × 1g.10gb+me; or 6 × 1g.10gb, 1 × 1g.20gb",
		},
		{
			name: "slices enough, but not side by side", board: "h100-80gb",
			wanted: []layout.Count{many(2, "2g.20gb"), one("4g.40gb")},
			want: "The board cannot be divided into 2 × 2g.20gb, 1 × 4g.40gb: they cannot be placed side by side; what fits: " +
				"2 × 2g.20gb, 1 × 3g.40gb; or 1 × 1g.20gb, 1 × 2g.20gb, 1 × 4g.40gb; or 1 × 1g.10gb, 1 × 2g.20gb, 1 × 4g.40gb",
		},
		{
			name: "the media engines are held once", board: "h100-80gb",
			wanted: []layout.Count{many(2, "1g.10gb+me")},
			want: "The board cannot be divided into 2 × 1g.10gb+me: it holds at most 1 × 1g.10gb+me; what fits: " +
				"1 × 1g.10gb, 1 × 1g.10gb+me; or 1 × 1g.10gb+me, 1 × 1g.20gb; or 1 × 1g.10gb+me",
		},
		{
			name: "all media engines leave none for others", board: "rtxpro6000-96gb",
			wanted: []layout.Count{one("1g.24gb+me.all"), many(2, "1g.24gb-me"), one("1g.24gb")},
			want: "The board cannot be divided into 1 × 1g.24gb+me.all, 2 × 1g.24gb-me, 1 × 1g.24gb: they need more media engines " +
				"than it has; what fits: 1 × 1g.24gb+me.all, 3 × 1g.24gb-me; or 1 × 1g.24gb, 3 × 1g.24gb-me; " +
				"or 2 × 1g.24gb, 2 × 1g.24gb-me",
		},
		{
			name: "a profile of another board becomes the one of its size", board: "h200-141gb",
			wanted: []layout.Count{one("1g.10gb+me"), one("3g.40gb"), one("2g.35gb")},
			want: "The board cannot be divided into 1 × 1g.10gb+me, 1 × 3g.40gb, 1 × 2g.35gb: it has no MIG profile 1g.10gb+me, " +
				"it has 1g.18gb, 1g.18gb+me, 1g.35gb, 2g.35gb, 3g.71gb, 4g.71gb, 7g.141gb; what fits: " +
				"1 × 1g.18gb+me, 1 × 2g.35gb, 1 × 3g.71gb; or 1 × 1g.18gb, 1 × 2g.35gb, 1 × 3g.71gb; or 1 × 1g.35gb, 1 × 2g.35gb, 1 × 3g.71gb",
		},
		{
			name: "absurd counts are answered all the same", board: "a30-24gb",
			wanted: []layout.Count{many(2_000_000_000, "large"), many(2_000_000_000, "1g.6gb")},
			want: "The board cannot be divided into 2000000000 × large, 2000000000 × 1g.6gb: it has no MIG profile large, " +
				"it has 1g.6gb, 1g.6gb+me, 2g.12gb, 2g.12gb+me, 4g.24gb; what fits: " +
				"4 × 1g.6gb; or 3 × 1g.6gb, 1 × 1g.6gb+me; or 3 × 1g.6gb",
		},
		{
			name: "no instance at all is not a line", board: "a30-24gb", wanted: []layout.Count{many(0, "1g.6gb")},
			want: "The board cannot be divided into 0 × 1g.6gb: a count is at least 1, 1g.6gb has 0",
		},
		{
			name: "a board without MIG has nothing to suggest", wanted: []layout.Count{one("1g.10gb")},
			want: "The board cannot be divided into 1 × 1g.10gb: it offers no MIG profiles",
		},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			board := boards(t)[tc.board]
			board.Product = "The board"
			err := layout.Check(board, tc.wanted)
			if err == nil {
				t.Fatal("accepted")
			}
			if diff := cmp.Diff(tc.want, err.Error()); diff != "" {
				t.Errorf("refusal (-want +got):\n%s", diff)
			}
		})
	}
}

// TestASuggestionIsNearest checks for every impossible multiset of every kind of board that each suggestion can be
// placed, adds nothing, and that no layout leaves more of the wanted instances as they are than the first.
func TestASuggestionIsNearest(t *testing.T) {
	t.Parallel()
	for key, board := range geometries(t) {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			b := newBrute(board)
			all := layout.All(board)
			everyMultiset(board, 4, func(wanted []layout.Count) {
				if len(wanted) == 0 || b.byLayout[keyOf(wanted)] != nil {
					return
				}
				suggested := layout.Suggest(board, wanted, 3)
				if len(suggested) == 0 {
					t.Errorf("%s: nothing suggested", layout.Describe(wanted))
					return
				}
				least := 0
				for _, possible := range all {
					if instances(possible) <= instances(wanted) {
						least = max(least, common(wanted, possible))
					}
				}
				if got := common(wanted, suggested[0]); got != least {
					t.Errorf("%s: %s leaves %d as they are, %d is possible",
						layout.Describe(wanted), layout.Describe(suggested[0]), got, least)
				}
				for _, s := range suggested {
					if layout.Check(board, s) != nil || instances(s) > instances(wanted) {
						t.Errorf("%s: %s is no answer", layout.Describe(wanted), layout.Describe(s))
					}
				}
			})
		})
	}
}

func TestAllIsWhatBruteForceFinds(t *testing.T) {
	for key, board := range boards(t) {
		t.Run(key, func(t *testing.T) {
			b := newBrute(board)
			all := layout.All(board)
			// The empty layout is none.
			if len(all) != len(b.byLayout)-1 {
				t.Errorf("%d layouts, want %d", len(all), len(b.byLayout)-1)
			}
			for _, counts := range all {
				slices.SortFunc(counts, func(x, y layout.Count) int { return strings.Compare(x.Profile, y.Profile) })
				if b.byLayout[keyOf(counts)] == nil {
					t.Errorf("%s cannot be held", layout.Describe(counts))
				}
			}
		})
	}
}

func instances(counts []layout.Count) int {
	sum := 0
	for _, line := range counts {
		sum += line.Count
	}
	return sum
}

// common is how many instances two layouts share.
func common(a, b []layout.Count) int {
	shared := 0
	for _, x := range a {
		for _, y := range b {
			if x.Profile == y.Profile {
				shared += min(x.Count, y.Count)
			}
		}
	}
	return shared
}
