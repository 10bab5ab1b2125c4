// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"fmt"
	"slices"
	"strings"
)

// suggestions is how many layouts a refusal names.
const suggestions = 3

// ImpossibleError says that a board cannot hold a layout, and what comes nearest to it.
type ImpossibleError struct {
	Board  Board
	Wanted []Count
	// Reason is a clause that says what is wrong.
	Reason string
}

// Error is the sentence for people, with the nearest layouts that the board can hold.
func (e *ImpossibleError) Error() string {
	sentence := fmt.Sprintf("%s cannot be divided into %s: %s", e.Board.Product, Describe(e.Wanted), e.Reason)
	nearest := Suggest(e.Board, e.Wanted, suggestions)
	if len(nearest) == 0 {
		return sentence
	}
	fitting := make([]string, len(nearest))
	for i, layout := range nearest {
		fitting[i] = Describe(layout)
	}
	return sentence + "; what fits: " + strings.Join(fitting, "; or ")
}

// Check says whether a board can hold a layout. The error is an *ImpossibleError.
func Check(board Board, wanted []Count) error {
	r := rulesOf(board)
	return r.check(board, wanted)
}

func (r *rules) check(board Board, wanted []Count) error {
	reason := r.unknown(wanted)
	if reason == "" {
		reason = r.unplaceable(wanted)
	}
	if reason == "" {
		return nil
	}
	return &ImpossibleError{Board: board, Wanted: slices.Clone(wanted), Reason: reason}
}

// unknown finds what makes no sense on the board at all; "" where everything does.
func (r *rules) unknown(wanted []Count) string {
	if len(r.profiles) == 0 {
		return "it offers no MIG profiles"
	}
	for _, line := range wanted {
		if line.Count < 1 {
			return fmt.Sprintf("a count is at least 1, %s has %d", line.Profile, line.Count)
		}
		if _, known := r.index[line.Profile]; !known {
			return fmt.Sprintf("it has no MIG profile %s, it has %s", line.Profile, strings.Join(r.names(), ", "))
		}
	}
	return ""
}

// names are the profiles' from small to large.
func (r *rules) names() []string {
	names := make([]string, 0, len(r.profiles))
	for _, p := range slices.Backward(r.profiles) {
		names = append(names, p.Name)
	}
	return names
}

// unplaceable says why instances of the board's profiles do not fit at once; "" where they do.
func (r *rules) unplaceable(wanted []Count) string {
	counts := r.counts(wanted)
	for profile, n := range counts {
		if most := r.profiles[profile].Max; n > most {
			return fmt.Sprintf("it holds at most %d × %s", most, r.profiles[profile].Name)
		}
	}
	if _, fits := r.place(r.empty(), counts); fits {
		return ""
	}
	need := 0
	for profile, n := range counts {
		need += n * r.profiles[profile].MemorySlices
	}
	if need > r.slots {
		return fmt.Sprintf("they take %d memory slices, it has %d", need, r.slots)
	}
	unlimited := *r
	unlimited.ofa, unlimited.media = 0, nil
	if _, fits := unlimited.place(r.empty(), counts); fits {
		return "they need more media engines than it has"
	}
	return "they cannot be placed side by side"
}
