// SPDX-License-Identifier: Apache-2.0

package miglayouts

import "math"

// mix is what is asked for.
type mix struct {
	name string
	// weights are how often each profile is asked for.
	weights map[string]float64
}

// rates are how often each profile of the board is asked for in the mean lifetime of an instance, when the instances asked
// for would take load times the memory slices of so many GPUs.
func (m mix) rates(b *board, load float64, gpus int) []float64 {
	rates := make([]float64, len(b.profiles))
	sum, slots, all := 0.0, 0.0, 0
	for i, name := range b.profiles {
		rates[i] = m.weights[name]
		sum += rates[i]
	}
	for i := range rates {
		rates[i] /= sum
		size := 0
		for _, p := range b.places {
			if p.profile == i {
				size = p.size
			}
			all = max(all, p.size)
		}
		slots += rates[i] * float64(size)
	}
	for i := range rates {
		rates[i] *= load * float64(all*gpus) / slots
	}
	return rates
}

// chain is one GPU to which requests come at random, and which instances leave at random: a Markov chain whose states are
// the sets of instances.
type chain struct {
	b        *board
	rates    []float64
	arrivals float64
	states   []state
	index    map[set]int
	// pace is at least the rate of all that can happen in any state.
	pace float64
}

// state is a set of instances and the states that can follow.
type state struct {
	taken set
	// coming are, for each profile and each place that is free for it, the state with an instance there.
	coming [][]int
	// going are the states with one instance less.
	going []int
}

func newChain(b *board, rates []float64) *chain {
	c := &chain{b: b, rates: rates, index: map[set]int{}}
	c.explore(0)
	for _, r := range rates {
		c.arrivals += r
	}
	most := 0
	for _, s := range c.states {
		most = max(most, len(s.going))
	}
	c.pace = float64(most) + c.arrivals
	return c
}

// explore finds all states that can follow a set of instances, and returns the set's own.
func (c *chain) explore(taken set) int {
	if i, known := c.index[taken]; known {
		return i
	}
	i := len(c.states)
	c.index[taken] = i
	c.states = append(c.states, state{})
	s := state{taken: taken, coming: make([][]int, len(c.b.profiles))}
	for profile, free := range c.b.free(taken) {
		for _, p := range free {
			s.coming[profile] = append(s.coming[profile], c.explore(taken|1<<p))
		}
	}
	for left := taken; left != 0; left &= left - 1 {
		s.going = append(s.going, c.explore(taken&^(left&-left)))
	}
	c.states[i] = s
	return i
}

// solve finds the share of requests that find a place in the long run, by value iteration. A nil chooser stands for the
// best there is: it knows the rates and looks ahead, but neither moves an instance nor turns away what fits, as nothing
// that schedules pods does.
func (c *chain) solve(choose chooser) float64 {
	chosen := c.chosen(choose)
	value, next := make([]float64, len(c.states)), make([]float64, len(c.states))
	for {
		least, most := math.Inf(1), math.Inf(-1)
		for i := range c.states {
			next[i] = c.step(i, value, chosen)
			least, most = min(least, next[i]-value[i]), max(most, next[i]-value[i])
		}
		base := next[0]
		for i := range next {
			next[i] -= base
		}
		value, next = next, value
		if most-least < 1e-8 {
			return least * c.pace / c.arrivals
		}
	}
}

// chosen are a chooser's states by state and profile; nil for a nil chooser.
func (c *chain) chosen(choose chooser) [][]int {
	if choose == nil {
		return nil
	}
	chosen := make([][]int, len(c.states))
	for i, s := range c.states {
		chosen[i] = make([]int, len(s.coming))
		for profile, free := range c.b.free(s.taken) {
			if len(free) > 0 {
				chosen[i][profile] = c.index[s.taken|1<<choose(s.taken, free)]
			}
		}
	}
	return chosen
}

// step is what a state is worth when the next event is looked at, too.
func (c *chain) step(i int, value []float64, chosen [][]int) float64 {
	sum, rest := 0.0, c.pace-c.arrivals-float64(len(c.states[i].going))
	for profile, coming := range c.states[i].coming {
		worth := value[i]
		switch {
		case len(coming) == 0:
		case chosen != nil:
			worth = 1 + value[chosen[i][profile]]
		default:
			worth = 1 + value[coming[0]]
			for _, to := range coming[1:] {
				worth = max(worth, 1+value[to])
			}
		}
		sum += c.rates[profile] * worth
	}
	for _, to := range c.states[i].going {
		sum += value[to]
	}
	return (sum + rest*value[i]) / c.pace
}
