// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-gpu/sluice/internal/layout/product"
)

// Rule says which GPUs of a pool get which layout.
type Rule struct {
	// Name is how people call it.
	Name string
	// Products are patterns of product names; none: any product.
	Products []string
	// Minors are ranges of minor numbers; none: any minor.
	Minors []Range
	// Layout is what the GPUs are divided into.
	Layout []Count
}

// Range is a range of minor numbers, both ends in it.
type Range struct{ First, Last int32 }

// Applies says whether a rule speaks of a GPU.
func (r Rule) Applies(name string, minor int32) bool {
	byProduct := len(r.Products) == 0 || slices.ContainsFunc(r.Products, func(pattern string) bool {
		return product.Matches(pattern, name)
	})
	byMinor := len(r.Minors) == 0 || slices.ContainsFunc(r.Minors, func(m Range) bool {
		return m.First <= minor && minor <= m.Last
	})
	return byProduct && byMinor
}

// ChoiceError says why a GPU has no layout: none speaks of it, or several do.
type ChoiceError struct {
	Product string
	Minor   int32
	// Matching are the names of the rules that speak of the GPU: none, or two and more.
	Matching []string
	// Offered are the names of all rules.
	Offered []string
}

// Error is the sentence for people.
func (e *ChoiceError) Error() string {
	which := fmt.Sprintf("GPU %d (%s)", e.Minor, e.Product)
	switch {
	case len(e.Offered) == 0:
		return which + " has no layout: the pool lists none"
	case len(e.Matching) == 0:
		return fmt.Sprintf("%s has no layout: neither products nor minors of %s match it", which, strings.Join(e.Offered, ", "))
	default:
		return fmt.Sprintf("%s has %d layouts, %s: narrow their products or minors so that one is left",
			which, len(e.Matching), strings.Join(e.Matching, " and "))
	}
}

// Choose finds the one rule that speaks of a GPU. The error is a *ChoiceError: where two do, guessing would divide a GPU in
// a way that nobody asked for.
func Choose(rules []Rule, name string, minor int32) (Rule, error) {
	var matching, offered []string
	var chosen Rule
	for _, rule := range rules {
		offered = append(offered, rule.Name)
		if rule.Applies(name, minor) {
			matching = append(matching, rule.Name)
			chosen = rule
		}
	}
	if len(matching) != 1 {
		return Rule{}, &ChoiceError{Product: name, Minor: minor, Matching: matching, Offered: offered}
	}
	return chosen, nil
}
