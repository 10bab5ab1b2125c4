// SPDX-License-Identifier: Apache-2.0

package miglayouts

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"text/tabwriter"
)

const (
	boardKey = "h100-80gb"
	// seeds are how often each case is played, each with so many requests.
	seeds, longList = 5, 40_000
	// shortSeeds and shortList are those of the small cases.
	shortSeeds, shortList = 1000, 12
)

// mixes are what tenants of an H100 may ask for.
func mixes() []mix {
	return []mix{
		{"mostly small", map[string]float64{
			"1g.10gb": 40, "1g.10gb+me": 5, "1g.20gb": 10, "2g.20gb": 20, "3g.40gb": 15, "4g.40gb": 5, "7g.80gb": 5,
		}},
		{"small and large", map[string]float64{"1g.10gb": 50, "2g.20gb": 20, "3g.40gb": 20, "4g.40gb": 10}},
		{"all alike", map[string]float64{
			"1g.10gb": 1, "1g.10gb+me": 1, "1g.20gb": 1, "2g.20gb": 1, "3g.40gb": 1, "4g.40gb": 1, "7g.80gb": 1,
		}},
	}
}

// BenchmarkAcceptance prints which share of requests finds a place, in three tables.
func BenchmarkAcceptance(b *testing.B) {
	for b.Loop() {
		board := published(b, boardKey)
		// The benchmark's own log is cut after ten lines.
		fmt.Fprintf(os.Stdout, "\n%s\n%s\n%s", oneGPU(b, board), manyGPUs(board), smallCases(b, board))
	}
	b.ReportMetric(0, "ns/op")
}

// oneGPU compares on one GPU, in the long run and exactly, and for seeded requests.
func oneGPU(tb testing.TB, b *board) string {
	tb.Helper()
	t := newTable("one GPU: requests that find a place, in the long run", "mix", "load", "ascending", "published", "best online",
		"published, seeded", "slices: ascending", "slices: published")
	for _, m := range mixes() {
		for _, load := range []float64{0.25, 0.5, 0.75, 1, 1.5} {
			rates := m.rates(b, load, 1)
			c := newChain(b, rates)
			low, ours, best := c.solve(b.ascending), c.solve(first), c.solve(nil)
			if best < max(low, ours)-1e-6 {
				tb.Errorf("%s at load %.2f: ascending %.4f, published %.4f, best %.4f", m.name, load, low, ours, best)
			}
			seeded, plain := b.average(rates, 1, first), b.average(rates, 1, b.ascending)
			t.row(m.name, fmt.Sprintf("%.2f", load), percent(low), percent(ours), percent(best),
				percent(seeded.requests()), percent(plain.slots()), percent(seeded.slots()))
		}
	}
	return t.String()
}

// manyGPUs compares on the GPUs of a node, the first with room taking each request.
func manyGPUs(b *board) string {
	const gpus = 8
	t := newTable("8 GPUs, seeded: requests that find a place", "mix", "load", "ascending", "published",
		"slices: ascending", "slices: published")
	for _, m := range mixes() {
		for _, load := range []float64{0.5, 0.75, 1} {
			rates := m.rates(b, load, gpus)
			low, ours := b.average(rates, gpus, b.ascending), b.average(rates, gpus, first)
			t.row(m.name, fmt.Sprintf("%.2f", load), percent(low.requests()), percent(ours.requests()),
				percent(low.slots()), percent(ours.slots()))
		}
	}
	return t.String()
}

// smallCases compares on short lists of requests with the best that any choice of places got.
func smallCases(tb testing.TB, b *board) string {
	tb.Helper()
	t := newTable(fmt.Sprintf("%d lists of %d requests each to one GPU: requests that find a place", shortSeeds, shortList),
		"mix", "load", "ascending", "published", "best of all choices", "lists where published is the best", "where ascending is")
	for _, m := range mixes() {
		for _, load := range []float64{0.5, 1} {
			var low, ours, best, oursBest, lowBest int
			for seed := range uint64(shortSeeds) {
				list := requests(seed, m.rates(b, load, 1), shortList)
				x, y, z := b.play(list, 1, b.ascending).accepted, b.play(list, 1, first).accepted, b.bestPlay(list)
				if z < max(x, y) {
					tb.Errorf("%s at load %.2f, seed %d: trying all accepts %d, ascending %d, published %d", m.name, load, seed, z, x, y)
				}
				low, ours, best = low+x, ours+y, best+z
				if x == z {
					lowBest++
				}
				if y == z {
					oursBest++
				}
			}
			const all = shortSeeds * shortList
			t.row(m.name, fmt.Sprintf("%.2f", load), percent(share(low, all)), percent(share(ours, all)), percent(share(best, all)),
				percent(share(oursBest, shortSeeds)), percent(share(lowBest, shortSeeds)))
		}
	}
	return t.String()
}

// average plays all seeds.
func (b *board) average(rates []float64, gpus int, choose chooser) tally {
	var sum tally
	for seed := range uint64(seeds) {
		t := b.play(requests(seed, rates, longList), gpus, choose)
		sum.accepted += t.accepted
		sum.asked += t.asked
		sum.slotsAccepted += t.slotsAccepted
		sum.slotsAsked += t.slotsAsked
	}
	return sum
}

func (t tally) requests() float64 { return share(t.accepted, t.asked) }
func (t tally) slots() float64    { return share(t.slotsAccepted, t.slotsAsked) }

func share(part, whole int) float64 { return float64(part) / float64(whole) }

func percent(x float64) string { return fmt.Sprintf("%.2f %%", 100*x) }

// table is text in columns.
type table struct {
	text strings.Builder
	out  *tabwriter.Writer
}

func newTable(title string, columns ...string) *table {
	t := &table{}
	t.text.WriteString(title + "\n")
	t.out = tabwriter.NewWriter(&t.text, 0, 0, 2, ' ', 0)
	t.row(columns...)
	return t
}

func (t *table) row(cells ...string) { fmt.Fprintln(t.out, strings.Join(cells, "\t")) }

func (t *table) String() string {
	_ = t.out.Flush()
	return t.text.String()
}
