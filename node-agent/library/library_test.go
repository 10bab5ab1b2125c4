// SPDX-License-Identifier: Apache-2.0

package library_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sluice-gpu/sluice/node-agent/library"
)

// install makes a share directory and a library of the given content, and a door to them.
func install(t *testing.T, content string) (door *library.Door, shares, source string) {
	t.Helper()
	shares, source = t.TempDir(), filepath.Join(t.TempDir(), "libsluice.so")
	if err := os.WriteFile(source, []byte("\x7fELF"+content), 0o600); err != nil {
		t.Fatal(err)
	}
	return library.New(shares, source), shares, source
}

// other is the door of another agent with another build.
func other(t *testing.T, shares, content string) *library.Door {
	t.Helper()
	source := filepath.Join(t.TempDir(), "libsluice.so")
	if err := os.WriteFile(source, []byte("\x7fELF"+content), 0o600); err != nil {
		t.Fatal(err)
	}
	return library.New(shares, source)
}

func place(t *testing.T, door *library.Door, version string) library.Placed {
	t.Helper()
	placed, err := door.Place(version)
	if err != nil {
		t.Fatal(err)
	}
	return placed
}

func TestPlace(t *testing.T) {
	door, shares, source := install(t, "one")
	defer unix.Umask(unix.Umask(0o077))
	placed := place(t, door, "")
	dir := filepath.Join(shares, "lib", placed.Version)
	want := library.Placed{
		Version: placed.Version, File: filepath.Join(dir, "libsluice.so"), Preload: filepath.Join(dir, "ld.so.preload"),
		ContainerFile: "/run/sluice/lib/" + placed.Version + "/libsluice.so", Heartbeat: filepath.Join(shares, "heartbeat"),
	}
	if diff := cmp.Diff(want, placed); diff != "" || len(placed.Version) != 16 {
		t.Errorf("placed (-want +got):\n%s", diff)
	}
	for path, want := range map[string]struct {
		mode fs.FileMode
		data string
	}{
		filepath.Join(shares, "lib"): {mode: fs.ModeDir | 0o711}, dir: {mode: fs.ModeDir | 0o711},
		placed.File:    {mode: 0o755, data: "\x7fELFone"},
		placed.Preload: {mode: 0o644, data: placed.ContainerFile + "\n"},
	} {
		info, err := os.Stat(path)
		if err != nil || info.Mode() != want.mode {
			t.Errorf("%s has mode %v (%v), want %v", path, info.Mode(), err, want.mode)
		}
		if data, _ := os.ReadFile(path); string(data) != want.data {
			t.Errorf("%s holds %q, want %q", path, data, want.data)
		}
	}
	// The file it came from may change or go: what is placed is one build for the agent's life, and is never written again.
	before := inode(t, placed.File)
	if err := os.Remove(source); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(placed, place(t, door, "")); diff != "" || inode(t, placed.File) != before {
		t.Errorf("placing it again is not the same (-first +second):\n%s", diff)
	}
	if version, err := door.Status(); version != placed.Version || err != nil {
		t.Errorf("Status is %q, %v", version, err)
	}
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		t.Fatal(err)
	}
	return stat.Ino
}

func TestWithoutASourceThereIsNothingToPlace(t *testing.T) {
	shares := t.TempDir()
	door := library.New(shares, "")
	if placed := place(t, door, ""); placed != (library.Placed{}) {
		t.Errorf("placed %+v", placed)
	}
	if version, err := door.Status(); version != "" || err != nil {
		t.Errorf("Status is %q, %v", version, err)
	}
	// What was prepared with a version goes on having it.
	old := place(t, other(t, shares, "old"), "")
	if placed := place(t, door, old.Version); placed != old {
		t.Errorf("the old version is at %+v, want %+v", placed, old)
	}
}

func TestWhatIsWrongIsSaid(t *testing.T) {
	for _, tc := range []struct {
		name    string
		spoil   func(t *testing.T, shares, source string)
		version string
		want    error
	}{
		{name: "the library is not installed", want: fs.ErrNotExist, spoil: func(t *testing.T, _, source string) {
			t.Helper()
			must(t, os.Remove(source))
		}},
		{name: "the installed file is no library", want: library.ErrDamaged, spoil: func(t *testing.T, _, source string) {
			t.Helper()
			must(t, os.WriteFile(source, []byte("#!/bin/sh"), 0o600))
		}},
		{name: "a version that nobody has", version: "0123456789abcdef", want: library.ErrGone},
		{name: "a version that is a way out", version: "..", want: library.ErrGone},
		{name: "the placed file has another content", want: library.ErrDamaged, spoil: func(t *testing.T, shares, source string) {
			t.Helper()
			placed := place(t, library.New(shares, source), "")
			must(t, os.WriteFile(placed.File, []byte("\x7fELFtwo"), 0o600))
		}},
		{name: "the library's directory is another file system", want: library.ErrDamaged, spoil: func(t *testing.T, shares, _ string) {
			t.Helper()
			lib := filepath.Join(shares, "lib")
			must(t, os.Mkdir(lib, 0o711))
			if err := unix.Mount("sluice", lib, "tmpfs", 0, ""); err != nil {
				t.Skipf("mounting: %v", err)
			}
			t.Cleanup(func() { _ = unix.Unmount(lib, unix.MNT_DETACH) })
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			door, shares, source := install(t, "one")
			if tc.spoil != nil {
				tc.spoil(t, shares, source)
			}
			if _, err := door.Place(tc.version); !errors.Is(err, tc.want) {
				t.Errorf("Place: %v, want %v", err, tc.want)
			}
			if _, err := door.Status(); tc.version == "" && !errors.Is(err, tc.want) {
				t.Errorf("Status: %v, want %v", err, tc.want)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestACrashLeavesNothingThatCounts(t *testing.T) {
	door, shares, _ := install(t, "one")
	half := filepath.Join(shares, "lib", ".new")
	must(t, os.MkdirAll(half, 0o700))
	must(t, os.WriteFile(filepath.Join(half, "libsluice.so"), []byte("ha"), 0o600))
	if door.Holds(".new") {
		t.Error("half a version counts")
	}
	placed := place(t, door, "")
	if data, err := os.ReadFile(placed.File); err != nil || string(data) != "\x7fELFone" {
		t.Errorf("placed %q (%v)", data, err)
	}
	wantVersions(t, shares, placed.Version)
}

func wantVersions(t *testing.T, shares string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(shares, "lib"))
	if err != nil {
		t.Fatal(err)
	}
	got := []string{}
	for _, e := range entries {
		if e.IsDir() {
			got = append(got, e.Name())
		}
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
}

// TestAgentsOverlap has a newer agent serve while the old one is the active one, and follow it.
func TestAgentsOverlap(t *testing.T) {
	old, shares, _ := install(t, "old")
	first := place(t, old, "")
	must(t, old.Lead())
	next := other(t, shares, "new")
	if got := place(t, next, ""); got != first {
		t.Errorf("beside the active agent %+v is placed, want its %+v", got, first)
	}
	must(t, next.Sweep(nil))
	wantVersions(t, shares, first.Version)
	must(t, next.Lead())
	second := place(t, next, "")
	if second.Version == first.Version {
		t.Error("the new active agent places the old one's version")
	}
	must(t, next.Sweep([]string{first.Version}))
	wantVersions(t, shares, first.Version, second.Version)
	must(t, next.Sweep(nil))
	wantVersions(t, shares, second.Version)
}
