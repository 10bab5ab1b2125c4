// SPDX-License-Identifier: Apache-2.0

package miglayouts

import (
	"container/heap"
	"math/rand/v2"
)

// request asks for an instance for some time.
type request struct {
	profile    int
	from, till float64
}

// requests come at random at the given rates; lifetimes are exponential with mean 1.
func requests(seed uint64, rates []float64, n int) []request {
	random := rand.New(rand.NewPCG(seed, 6)) //nolint:gosec // A seeded generator makes the figures repeatable.
	all := 0.0
	for _, r := range rates {
		all += r
	}
	list := make([]request, n)
	now := 0.0
	for i := range list {
		now += random.ExpFloat64() / all
		pick := random.Float64() * all
		profile := 0
		for pick >= rates[profile] && profile < len(rates)-1 {
			pick -= rates[profile]
			profile++
		}
		list[i] = request{profile, now, now + random.ExpFloat64()}
	}
	return list
}

// departures are instances by the time at which they leave.
type departures []departure

type departure struct {
	at  float64
	gpu int
	bit set
}

func (d departures) Len() int           { return len(d) }
func (d departures) Less(i, j int) bool { return d[i].at < d[j].at }
func (d departures) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }

// Push and Pop are the heap's.
func (d *departures) Push(x any) {
	if one, ok := x.(departure); ok {
		*d = append(*d, one)
	}
}

// Pop removes the last.
func (d *departures) Pop() any {
	last := (*d)[len(*d)-1]
	*d = (*d)[:len(*d)-1]
	return last
}

// tally is how many requests found a place, and how many memory slices these and all asked for.
type tally struct {
	accepted, asked           int
	slotsAccepted, slotsAsked int
}

// play sends requests to so many GPUs, of which the first that has room takes each.
func (b *board) play(list []request, gpus int, choose chooser) tally {
	var t tally
	var leaving departures
	taken := make([]set, gpus)
	size := make([]int, len(b.profiles))
	for _, p := range b.places {
		size[p.profile] = p.size
	}
	for _, r := range list {
		for len(leaving) > 0 && leaving[0].at <= r.from {
			if d, ok := heap.Pop(&leaving).(departure); ok {
				taken[d.gpu] &^= d.bit
			}
		}
		t.asked++
		t.slotsAsked += size[r.profile]
		for g := range taken {
			free := b.free(taken[g])[r.profile]
			if len(free) == 0 {
				continue
			}
			bit := set(1) << choose(taken[g], free)
			taken[g] |= bit
			heap.Push(&leaving, departure{r.till, g, bit})
			t.accepted++
			t.slotsAccepted += size[r.profile]
			break
		}
	}
	return t
}

// bestPlay is the most requests of a short list that any choice of places on one GPU accepts, found by trying all. Like
// every other way to choose it takes what fits and moves nothing; unlike them it knows what comes.
func (b *board) bestPlay(list []request) int {
	s := &trial{b: b, list: list, held: make([]set, len(list))}
	s.from(0, 0, 0)
	return s.best
}

type trial struct {
	b    *board
	list []request
	// held is what each request was given.
	held []set
	best int
}

func (s *trial) from(i int, taken set, accepted int) {
	if accepted+len(s.list)-i <= s.best {
		return
	}
	if i == len(s.list) {
		s.best = accepted
		return
	}
	r := s.list[i]
	for j := range i {
		if s.list[j].till <= r.from {
			taken &^= s.held[j]
		}
	}
	// What an earlier request left may have been taken since by a later one that is still there.
	for j := range i {
		if s.list[j].till > r.from {
			taken |= s.held[j]
		}
	}
	free := s.b.free(taken)[r.profile]
	if len(free) == 0 {
		s.held[i] = 0
		s.from(i+1, taken, accepted)
		return
	}
	for _, p := range free {
		s.held[i] = 1 << p
		s.from(i+1, taken|1<<p, accepted+1)
	}
}
