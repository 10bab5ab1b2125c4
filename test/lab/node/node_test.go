// SPDX-License-Identifier: Apache-2.0

package node

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestParseBoard(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       Board
		wantErr    bool
	}{
		{name: "MIG is off unless said otherwise", text: "h100-80gb:4", want: Board{Name: "h100-80gb", GPUs: 4, MIG: "off"}},
		{name: "MIG can be on", text: "a100-80gb:2:on", want: Board{Name: "a100-80gb", GPUs: 2, MIG: "on"}},
		{name: "a board without a number is refused", text: "a100-80gb", wantErr: true},
		{name: "no GPUs are refused", text: "a100-80gb:0", wantErr: true},
		{name: "another MIG mode is refused", text: "a100-80gb:1:maybe", wantErr: true},
		{name: "no name is refused", text: ":1", wantErr: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := ParseBoard(tc.text)
			if (err != nil) != tc.wantErr || !tc.wantErr && got != tc.want {
				t.Errorf("ParseBoard = %+v, %v; want %+v, error %v", got, err, tc.want, tc.wantErr)
			}
		})
	}
}

func TestGPUCalls(t *testing.T) {
	gpus := GPUs{Seed: "s", Driver: "615.1", Limits: "misc", Boards: []Board{{Name: "h100-80gb", GPUs: 2, MIG: "off"}, {Name: "a100-80gb", GPUs: 1, MIG: "on"}}}
	var got []string
	for _, call := range gpus.calls("F", "R") {
		got = append(got, strings.Join(call, " "))
	}
	want := []string{
		"create --state F --board h100-80gb --gpus 2 --mig off --seed s --driver 615.1 --limits misc --dmem-anywhere",
		"add --state F --board a100-80gb --gpus 1 --mig on",
		"root --state F --root R",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the calls differ (-want +got):\n%s", diff)
	}
}

func TestSubstitute(t *testing.T) {
	values := map[string]string{"node": "n1", "dir": "/d"}
	for _, tc := range []struct {
		name    string
		words   []string
		want    []string
		wantErr bool
	}{
		{name: "words without placeholders stay", words: []string{"a", "{b}"}, want: []string{"a", "{b}"}},
		{name: "placeholders are replaced wherever they stand", words: []string{"--x={{dir}}/{{ node }}", "{{node}}"}, want: []string{"--x=/d/n1", "n1"}},
		{name: "an unknown placeholder is an error", words: []string{"{{nod}}"}, wantErr: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := substitute(tc.words, values)
			if (err != nil) != tc.wantErr {
				t.Fatalf("substitute = %v, want an error: %v", err, tc.wantErr)
			}
			if tc.wantErr {
				return
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("the words differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestObjectIsReadyWithItsLabels(t *testing.T) {
	got := object(Spec{Name: "n1", Labels: map[string]string{"gpu": "yes"}}, "v1.37.2", "boot", time.Unix(0, 0))
	if got.Labels["gpu"] != "yes" || got.Labels[corev1.LabelHostname] != "n1" {
		t.Errorf("the labels are %v", got.Labels)
	}
	if c := got.Status.Conditions[0]; c.Type != corev1.NodeReady || c.Status != corev1.ConditionTrue {
		t.Errorf("the first condition is %+v, want Ready", c)
	}
	if !strings.HasPrefix(got.Status.Addresses[0].Address, "198.18.") {
		t.Errorf("the address is %s", got.Status.Addresses[0].Address)
	}
}
