// SPDX-License-Identifier: Apache-2.0

package layout_test

import (
	"errors"
	"testing"

	"github.com/sluice-gpu/sluice/internal/layout"
)

func TestChoose(t *testing.T) {
	const h100 = "NVIDIA H100 80GB HBM3"
	sevenths := layout.Rule{Name: "sevenths", Products: []string{"NVIDIA-H100-*"}, Minors: []int32{0, 1, 2, 3}}
	halves := layout.Rule{Name: "halves", Products: []string{"NVIDIA H100*"}, Minors: []int32{3, 5, 6, 7}}
	small := layout.Rule{Name: "small", Products: []string{"NVIDIA A30", "NVIDIA A100*"}}
	rest := layout.Rule{Name: "rest"}
	cases := []struct {
		name    string
		rules   []layout.Rule
		product string
		minor   int32
		want    string
		problem string
	}{
		{name: "product and minor match", rules: []layout.Rule{sevenths, halves, small}, product: h100, minor: 0, want: "sevenths"},
		{name: "one of several minors matches", rules: []layout.Rule{sevenths, halves, small}, product: h100, minor: 7, want: "halves"},
		{name: "a second product matches", rules: []layout.Rule{sevenths, small}, product: "NVIDIA A100 80GB", minor: 9, want: "small"},
		{name: "a rule without conditions matches everything", rules: []layout.Rule{rest}, product: h100, minor: 9, want: "rest"},
		{
			name: "a minor that no layout lists has no layout", rules: []layout.Rule{sevenths, halves}, product: h100, minor: 4,
			problem: "GPU 4 (NVIDIA H100 80GB HBM3) has no layout: neither products nor minors of sevenths, halves match it",
		},
		{
			name: "another product has no layout", rules: []layout.Rule{sevenths}, product: "NVIDIA H200", minor: 0,
			problem: "GPU 0 (NVIDIA H200) has no layout: neither products nor minors of sevenths match it",
		},
		{
			name: "a pool without layouts says so", product: h100, minor: 1,
			problem: "GPU 1 (NVIDIA H100 80GB HBM3) has no layout: the pool lists none",
		},
		{
			name: "of two layouts that match the first counts", rules: []layout.Rule{halves, sevenths, small}, product: h100, minor: 3, want: "halves",
		},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			got, err := layout.Choose(tc.rules, tc.product, tc.minor)
			if got.Name != tc.want {
				t.Errorf("chose %q, want %q", got.Name, tc.want)
			}
			var problem *layout.ChoiceError
			switch {
			case tc.problem == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tc.problem != "" && !errors.As(err, &problem):
				t.Errorf("got error %v, want a ChoiceError", err)
			case tc.problem != "" && err.Error() != tc.problem:
				t.Errorf("got  %s\nwant %s", err, tc.problem)
			}
		})
	}
}
