// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/request"
)

// Amounts are whole numbers by the names of a quota's amounts; memory is in bytes. What is not named is 0. Sums stop at
// the largest number instead of running over.
type Amounts map[string]int64

// FromAPI reads amounts of an object's fields. Numbers that are too large for any GPU become the largest there is.
func FromAPI[M ~map[string]v1alpha1.QuotaAmount](from M) Amounts {
	if from == nil {
		return nil
	}
	amounts := make(Amounts, len(from))
	for name, amount := range from {
		amounts[name] = wholeOf(amount.Quantity)
	}
	return amounts
}

// API writes amounts as an object's field; nil where there are none.
func (a Amounts) API() v1alpha1.QuotaAmounts {
	if len(a) == 0 {
		return nil
	}
	written := make(v1alpha1.QuotaAmounts, len(a))
	for name, value := range a {
		format := resource.DecimalSI
		if name == v1alpha1.QuotaMemory {
			format = resource.BinarySI
		}
		written[name] = v1alpha1.QuotaAmount{Quantity: *resource.NewQuantity(value, format)}
	}
	return written
}

// Names are the names in the order in which people read them: memory, compute, gpus, then MIG profiles.
func (a Amounts) Names() []string {
	return slices.SortedFunc(maps.Keys(a), func(x, y string) int {
		if rank(x) != rank(y) {
			return rank(x) - rank(y)
		}
		return strings.Compare(x, y)
	})
}

func rank(name string) int {
	switch name {
	case v1alpha1.QuotaMemory:
		return 0
	case v1alpha1.QuotaCompute:
		return 1
	case v1alpha1.QuotaGPUs:
		return 2
	default:
		return 3
	}
}

// Plus is the sum.
func (a Amounts) Plus(b Amounts) Amounts {
	sum := make(Amounts, max(len(a), len(b)))
	maps.Copy(sum, a)
	for name, value := range b {
		sum[name] = add(sum[name], value)
	}
	return sum
}

// Largest takes the larger of each amount.
func (a Amounts) Largest(b Amounts) Amounts {
	larger := make(Amounts, max(len(a), len(b)))
	maps.Copy(larger, a)
	for name, value := range b {
		larger[name] = max(larger[name], value)
	}
	return larger
}

// Least takes the smaller of each amount; what one of them does not name is 0 and left out.
func (a Amounts) Least(b Amounts) Amounts {
	smaller := Amounts{}
	for name, value := range a {
		if other, named := b[name]; named {
			smaller[name] = min(value, other)
		}
	}
	return smaller
}

// Times is n times the amounts.
func (a Amounts) Times(n int64) Amounts {
	product := make(Amounts, len(a))
	for name, value := range a {
		switch {
		case value > 0 && n > math.MaxInt64/value:
			product[name] = math.MaxInt64
		default:
			product[name] = value * n
		}
	}
	return product
}

// Zero says whether nothing is named or all is 0.
func (a Amounts) Zero() bool {
	for _, value := range a {
		if value != 0 {
			return false
		}
	}
	return true
}

// Format writes one amount for people, such as 40Gi.
func Format(name string, value int64) string {
	if name != v1alpha1.QuotaMemory {
		return strconv.FormatInt(value, 10)
	}
	if value == 0 {
		return "0"
	}
	return request.FormatMemory(value)
}

// add does not run over: amounts come from objects that people write. Amounts are not negative.
func add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func wholeOf(quantity resource.Quantity) int64 {
	if quantity.CmpInt64(math.MaxInt64) >= 0 {
		return math.MaxInt64
	}
	return max(0, quantity.Value())
}
