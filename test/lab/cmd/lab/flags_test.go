// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseExtra(t *testing.T) {
	for _, tc := range []struct {
		name    string
		values  []string
		want    map[string][]string
		wantErr bool
	}{
		{name: "an argument may hold equals signs", values: []string{"kube-apiserver=--a=b=c"}, want: map[string][]string{"kube-apiserver": {"--a=b=c"}}},
		{name: "arguments of one component add up", values: []string{"etcd=--a", "etcd=--b"}, want: map[string][]string{"etcd": {"--a", "--b"}}},
		{name: "an unknown component is refused", values: []string{"kubelet=--a"}, wantErr: true},
		{name: "what is no argument is refused", values: []string{"etcd=a"}, wantErr: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := parseExtra(tc.values)
			if (err != nil) != tc.wantErr {
				t.Fatalf("parseExtra = %v, want an error: %v", err, tc.wantErr)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("the arguments differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestQuote(t *testing.T) {
	if got, want := quote("/a b/it's"), `'/a b/it'\''s'`; got != want {
		t.Errorf("quote = %s, want %s", got, want)
	}
}
