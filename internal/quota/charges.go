// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"maps"
	"slices"
)

// Charges are amounts by pool. The pool "" stands for one that is not known: its amounts count in every quota.
type Charges map[string]Amounts

// Cost is what something costs in the pools that a quota counts, nil meaning all.
type Cost interface {
	In(pools []string) Amounts
}

// In sums the amounts of the pools that a quota counts; nil: of all.
func (c Charges) In(pools []string) Amounts {
	sum := Amounts{}
	for pool, amounts := range c {
		if counts(pools, pool) {
			for name, value := range amounts {
				sum[name] = add(sum[name], value)
			}
		}
	}
	return sum
}

// counts says whether a quota of these pools counts what is of a pool.
func counts(pools []string, pool string) bool {
	return pools == nil || pool == "" || slices.Contains(pools, pool)
}

// Add adds amounts of a pool in place.
func (c Charges) Add(pool string, amounts Amounts) {
	sum, found := c[pool]
	if !found || sum == nil {
		sum = make(Amounts, len(amounts))
		c[pool] = sum
	}
	for name, value := range amounts {
		sum[name] = add(sum[name], value)
	}
}

// AddAll adds other charges in place.
func (c Charges) AddAll(others Charges) {
	for pool, amounts := range others {
		c.Add(pool, amounts)
	}
}

// Largest takes the larger of each amount of each pool.
func (c Charges) Largest(others Charges) Charges {
	larger := c.Clone()
	for pool, amounts := range others {
		larger[pool] = larger[pool].Largest(amounts)
	}
	return larger
}

// Clone is a copy that shares nothing.
func (c Charges) Clone() Charges {
	cloned := make(Charges, len(c))
	for pool, amounts := range c {
		cloned[pool] = maps.Clone(amounts)
	}
	return cloned
}

// Zero says whether nothing is charged.
func (c Charges) Zero() bool {
	for _, amounts := range c {
		if !amounts.Zero() {
			return false
		}
	}
	return true
}
