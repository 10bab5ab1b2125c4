// SPDX-License-Identifier: Apache-2.0

package checkpoint_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
)

func wantContexts() checkpoint.Contexts {
	return checkpoint.Contexts{Version: 1, Figures: []checkpoint.ContextFigure{
		{Product: "NVIDIA H100 80GB HBM3", Driver: "580.159.04", Profile: "1g.10gb", Mode: "Exclusive", Bytes: 434110464},
		{Product: "NVIDIA H200", Driver: "580.159.04", Mode: "Software", Bytes: 543162368},
	}}
}

func TestContexts(t *testing.T) {
	dir := t.TempDir()
	store, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	got, err := store.Contexts()
	if diff := cmp.Diff(checkpoint.Contexts{Version: 1}, got); diff != "" || err != nil {
		t.Errorf("before the first record (%v, -want +got):\n%s", err, diff)
	}
	if err := store.SaveContexts(wantContexts()); err != nil {
		t.Fatal(err)
	}
	old, err := os.ReadFile("testdata/v1/contexts.json")
	if err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(filepath.Join(dir, checkpoint.ContextsFile))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.TrimSpace(string(old)), string(written)); diff != "" {
		t.Errorf("the record differs from what older agents wrote (-old +new):\n%s", diff)
	}
	if got, err = store.Contexts(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantContexts(), got); diff != "" {
		t.Errorf("contexts (-want +got):\n%s", diff)
	}
}

// TestUnreadableContextsAreAnError names the file, and ends no agent: nothing is lost with them that cannot be found again.
func TestUnreadableContextsAreAnError(t *testing.T) {
	for _, tc := range []struct{ name, data string }{
		{name: "an empty file", data: ""},
		{name: "half a record", data: `{"version": 1, "figures": [{"product"`},
		{name: "a later version", data: `{"version": 2, "figures": []}`},
		{name: "a record without its list", data: `{"version": 1}`},
		{name: "a figure below zero", data: `{"version": 1, "figures": [{"bytes": -1}]}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), checkpoint.ContextsFile)
			if err := os.WriteFile(path, []byte(tc.data), 0o600); err != nil {
				t.Fatal(err)
			}
			store, err := checkpoint.Open(filepath.Dir(path))
			if err != nil {
				t.Fatal(err)
			}
			got, err := store.Contexts()
			if !errors.Is(err, checkpoint.ErrUnreadable) || !strings.Contains(err.Error(), path) || len(got.Figures) != 0 {
				t.Errorf("Contexts() = %v, %v, want nothing, ErrUnreadable and the file's name", got, err)
			}
		})
	}
}
