// SPDX-License-Identifier: Apache-2.0

package contexts

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const (
	mebi = 1 << 20
	safe = 640 * mebi
	cost = 518 * mebi
)

var h200 = Key{Product: "NVIDIA H200", Driver: "580.159.04", Mode: "Software"}

// sight is a process of a claim whose context costs so much, as the driver sees it, beside memory that both count.
func sight(claim string, stamp, costs uint64) Sight {
	const allocated = 300 * mebi
	return Sight{
		Process: Process{Share: Share{ClaimUID: claim}, Stamp: stamp}, Key: h200,
		Limit: 8 << 30, Context: safe, Held: safe + allocated, Driver: costs + allocated,
	}
}

func with(s Sight, change func(*Sight)) Sight {
	change(&s)
	return s
}

func TestFigures(t *testing.T) {
	mig := Key{Product: h200.Product, Driver: h200.Driver, Profile: "1g.18gb", Mode: "Software"}
	one := []Sight{sight("a", 1, cost)}
	for _, tc := range []struct {
		name  string
		known map[Key]uint64
		looks [][]Sight
		want  map[Key]uint64
	}{
		{name: "one look at one process proves nothing", looks: [][]Sight{one}},
		{name: "three looks at one process do", looks: [][]Sight{one, one, one}, want: map[Key]uint64{h200: cost}},
		{name: "three looks that differ do not", looks: [][]Sight{one, {sight("a", 1, 300*mebi)}, one}},
		{name: "two processes that agree are enough", looks: [][]Sight{{sight("a", 1, cost), sight("a", 2, cost)}}, want: map[Key]uint64{h200: cost}},
		{name: "two that do not agree are not", looks: [][]Sight{{sight("a", 1, cost), sight("a", 2, 300*mebi)}}},
		{name: "two on different devices are not", looks: [][]Sight{{sight("a", 1, cost), with(sight("a", 2, cost), func(s *Sight) { s.Key = mig })}}},
		{
			name:  "a figure is rounded up to the driver's pages",
			looks: [][]Sight{{sight("a", 1, cost-mebi), sight("a", 2, cost)}}, want: map[Key]uint64{h200: cost},
		},
		{
			name:  "of several the largest is taken",
			looks: [][]Sight{{sight("a", 1, cost), sight("a", 2, cost), sight("a", 3, 400*mebi), sight("a", 4, 400*mebi)}},
			want:  map[Key]uint64{h200: cost},
		},
		{
			name: "a figure that is known is found no second time", known: map[Key]uint64{h200: cost},
			looks: [][]Sight{{sight("a", 1, cost), sight("a", 2, cost)}},
		},
		{
			name: "a smaller one than known is none", known: map[Key]uint64{h200: cost},
			looks: [][]Sight{{sight("a", 1, 400*mebi), sight("a", 2, 400*mebi)}},
		},
		{
			name: "a larger one takes its place", known: map[Key]uint64{h200: 400 * mebi},
			looks: [][]Sight{{sight("a", 1, cost), sight("a", 2, cost)}}, want: map[Key]uint64{h200: cost},
		},
		{name: "one claim alone is not believed more than the safe figure", looks: [][]Sight{{sight("a", 1, 700*mebi), sight("a", 2, 700*mebi)}}},
		{
			name:  "two claims are",
			looks: [][]Sight{{sight("a", 1, 700*mebi), sight("b", 2, 700*mebi)}}, want: map[Key]uint64{h200: 700 * mebi},
		},
		{name: "too small to be a context", looks: [][]Sight{{sight("a", 1, 62*mebi), sight("a", 2, 62*mebi)}}},
		{name: "too large to be a context", looks: [][]Sight{{sight("a", 1, 5<<30), sight("b", 2, 5<<30)}}},
		{
			name: "no figure of the driver's is none, not zero",
			looks: [][]Sight{{
				with(sight("a", 1, cost), func(s *Sight) { s.Driver = 0 }), with(sight("a", 2, cost), func(s *Sight) { s.Driver = 0 }),
			}},
		},
		{
			name: "a process without a context is no witness",
			looks: [][]Sight{{
				with(sight("a", 1, cost), func(s *Sight) { s.Held = 2 * mebi }), with(sight("a", 2, cost), func(s *Sight) { s.Held = 2 * mebi }),
			}},
		},
		{
			name: "one that shares memory with others is none",
			looks: [][]Sight{{
				with(sight("a", 1, cost), func(s *Sight) { s.Mixed = true }), with(sight("a", 2, cost), func(s *Sight) { s.Mixed = true }),
			}},
		},
		{
			name: "a ledger beyond all measure is no figure",
			looks: [][]Sight{{
				with(sight("a", 1, cost), func(s *Sight) { s.Held = 16 << 40 }), with(sight("a", 2, cost), func(s *Sight) { s.Held = 16 << 40 }),
			}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var memory Memory
			var got Findings
			for _, look := range tc.looks {
				memory, got = Look(memory, tc.known, look)
			}
			if diff := cmp.Diff(tc.want, got.Figures, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("figures (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOverheads(t *testing.T) {
	share := Share{ClaimUID: "a"}
	dear := sight("a", 1, 700*mebi)
	for _, tc := range []struct {
		name  string
		looks [][]Sight
		want  map[Share]uint64
	}{
		{name: "a context below its charge costs nothing more", looks: [][]Sight{{sight("a", 1, cost)}, {sight("a", 1, cost)}}},
		{name: "one look is not believed", looks: [][]Sight{{dear}}},
		{name: "two are", looks: [][]Sight{{dear}, {dear}}, want: map[Share]uint64{share: 60 * mebi}},
		{name: "of two the smaller", looks: [][]Sight{{dear}, {sight("a", 1, 900*mebi)}}, want: map[Share]uint64{share: 60 * mebi}},
		{
			name:  "of several processes the largest",
			looks: [][]Sight{{dear, sight("a", 2, 720*mebi)}, {dear, sight("a", 2, 720*mebi)}}, want: map[Share]uint64{share: 80 * mebi},
		},
		{
			name:  "it is bounded",
			looks: [][]Sight{{sight("a", 1, 2<<30)}, {sight("a", 1, 2<<30)}}, want: map[Share]uint64{share: 256 * mebi},
		},
		{
			name: "it leaves a process room in its share",
			looks: [][]Sight{
				{with(sight("a", 1, 2<<30), func(s *Sight) { s.Limit = 720 * mebi })},
				{with(sight("a", 1, 2<<30), func(s *Sight) { s.Limit = 720 * mebi })},
			},
			want: map[Share]uint64{share: 16 * mebi},
		},
		{
			name:  "it is never lowered",
			looks: [][]Sight{{dear}, {with(dear, func(s *Sight) { s.Overhead = 100 * mebi })}},
		},
		{
			name: "a process that was charged it proves no more",
			looks: [][]Sight{
				{dear},
				{with(dear, func(s *Sight) { s.Overhead = 60 * mebi })},
				{dear, with(sight("a", 2, 700*mebi), func(s *Sight) { s.Overhead, s.Held = 60*mebi, s.Held+60*mebi })},
				{with(sight("a", 2, 700*mebi), func(s *Sight) { s.Overhead, s.Held = 60*mebi, s.Held+60*mebi })},
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var memory Memory
			var got Findings
			for _, look := range tc.looks {
				memory, got = Look(memory, nil, look)
			}
			if diff := cmp.Diff(tc.want, got.Overheads, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("overheads (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCharge(t *testing.T) {
	for _, tc := range []struct {
		name                string
		figure, limit, want uint64
	}{
		{name: "unknown is the safe figure", limit: 8 << 30, want: safe},
		{name: "known is the figure", figure: cost, limit: 8 << 30, want: cost},
		{name: "a large one is believed in a large share", figure: 900 * mebi, limit: 8 << 30, want: 900 * mebi},
		{name: "the smallest share that is admitted has room beside it", figure: 900 * mebi, limit: 704 * mebi, want: safe},
		{name: "a share that was admitted by nobody gets no more than the safe figure", figure: 900 * mebi, limit: 100 * mebi, want: safe},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Charge(tc.figure, tc.limit); got != tc.want {
				t.Errorf("charge is %d, want %d", got, tc.want)
			}
		})
	}
}
