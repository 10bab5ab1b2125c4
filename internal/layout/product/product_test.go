// SPDX-License-Identifier: Apache-2.0

package product_test

import (
	"testing"

	"github.com/sluice-gpu/sluice/internal/layout/product"
)

func TestMatches(t *testing.T) {
	const h100 = "NVIDIA H100 80GB HBM3"
	cases := []struct {
		name, pattern string
		want          bool
	}{
		{"the exact name matches", h100, true},
		{"the beginning alone does not match", "NVIDIA H100", false},
		{"more than the name does not match", h100 + " PCIe", false},
		{"a beginning and a star match", "NVIDIA H100*", true},
		{"a star and an end match", "*HBM3", true},
		{"a star alone matches", "*", true},
		{"stars side by side match", "**", true},
		{"stars inside match in order", "*H100*80GB*", true},
		{"stars inside do not match out of order", "*80GB*H100*", false},
		{"the parts must not overlap", "NVIDIA*HBM3*HBM3", false},
		{"the beginning and the end must not overlap", "NVIDIA H100 80GB*80GB HBM3", false},
		{"spaces may be written as hyphens", "NVIDIA-H100-*", true},
		{"another product does not match", "NVIDIA A100*", false},
		{"an empty pattern does not match", "", false},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			if got := product.Matches(tc.pattern, h100); got != tc.want {
				t.Errorf("%q matches %q: %t, want %t", tc.pattern, h100, got, tc.want)
			}
		})
	}
}
