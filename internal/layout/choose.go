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
	// Minors are minor numbers; none: any minor.
	Minors []int32
	// Layout is what the GPUs are divided into.
	Layout []Count
}

// Applies says whether a rule speaks of a GPU.
func (r Rule) Applies(name string, minor int32) bool {
	byProduct := len(r.Products) == 0 || slices.ContainsFunc(r.Products, func(pattern string) bool {
		return product.Matches(pattern, name)
	})
	return byProduct && (len(r.Minors) == 0 || slices.Contains(r.Minors, minor))
}

// ChoiceError says why a GPU has no layout: none speaks of it.
type ChoiceError struct {
	Product string
	Minor   int32
	// Offered are the names of all rules.
	Offered []string
}

// Error is the sentence for people.
func (e *ChoiceError) Error() string {
	which := fmt.Sprintf("GPU %d (%s)", e.Minor, e.Product)
	if len(e.Offered) == 0 {
		return which + " has no layout: the pool lists none"
	}
	return fmt.Sprintf("%s has no layout: neither products nor minors of %s match it", which, strings.Join(e.Offered, ", "))
}

// Choose finds the first rule that speaks of a GPU. The error is a *ChoiceError.
func Choose(rules []Rule, name string, minor int32) (Rule, error) {
	offered := make([]string, 0, len(rules))
	for _, rule := range rules {
		if rule.Applies(name, minor) {
			return rule, nil
		}
		offered = append(offered, rule.Name)
	}
	return Rule{}, &ChoiceError{Product: name, Minor: minor, Offered: offered}
}
