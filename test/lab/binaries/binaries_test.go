// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

func TestKey(t *testing.T) {
	source := func(mod, main string) fstest.MapFS {
		return fstest.MapFS{"go.mod": {Data: []byte(mod)}, "cmd/cluster/main.go": {Data: []byte(main)}}
	}
	const mod = "module m\n\nrequire (\n\tk8s.io/kubernetes v1.37.2\n)\n"
	base, err := key(source(mod, "package main"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(base, "v1.37.2-") {
		t.Errorf("key = %q, want the Kubernetes version first", base)
	}
	for _, tc := range []struct {
		name, mod, main string
		wantSame        bool
	}{
		{name: "the same source has the same key", mod: mod, main: "package main", wantSame: true},
		{name: "another program has another key", mod: mod, main: "package main // changed"},
		{name: "another requirement has another key", mod: mod + "require golang.org/x/sys v0.1.0\n", main: "package main"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := key(source(tc.mod, tc.main))
			if err != nil {
				t.Fatal(err)
			}
			if (got == base) != tc.wantSame {
				t.Errorf("key = %q, base %q; want same: %v", got, base, tc.wantSame)
			}
		})
	}
	if _, err := key(source("module m\n", "package main")); err == nil {
		t.Error("a module without Kubernetes has a key")
	}
}

func TestLdflagsNameTheVersion(t *testing.T) {
	got := ldflags("v1.37.2")
	for _, want := range []string{"gitVersion=v1.37.2", "gitMajor=1 ", "gitMinor=37"} {
		if !strings.Contains(got, want) {
			t.Errorf("ldflags = %q, want %q in it", got, want)
		}
	}
}

func TestGivenDirectory(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{Etcd, APIServer, ControllerManager, Scheduler, Kubelet} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	builder := Builder{Given: dir, Progress: io.Discard}
	_, err := builder.Ensure(t.Context())
	if err == nil || !strings.Contains(err.Error(), Kubectl) || strings.Contains(err.Error(), APIServer) {
		t.Errorf("a directory without kubectl gives %v, want an error that names kubectl alone", err)
	}
	if err := os.WriteFile(filepath.Join(dir, Kubectl), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	got, err := builder.Ensure(t.Context())
	if err != nil || got != dir {
		t.Errorf("Ensure = %q, %v; want %q", got, err, dir)
	}
}

func TestLockIsHeldByOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(t.Context(), path, func() { t.Error("waited for a free lock") })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := lock(ctx, path, cancel); err == nil {
		t.Fatal("a lock was taken twice")
	}
	unlock()
	unlock, err = lock(t.Context(), path, func() { t.Error("waited for a lock given back") })
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}
