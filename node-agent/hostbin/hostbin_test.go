// SPDX-License-Identifier: Apache-2.0

package hostbin_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-gpu/sluice/node-agent/hostbin"
)

// program makes a program of the given content.
func program(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hook")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func place(t *testing.T, door hostbin.Door, content string) string {
	t.Helper()
	path, err := door.Place(program(t, content))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPlaceMakesOneCopyOfEachContent(t *testing.T) {
	door := hostbin.Door{Dir: filepath.Join(t.TempDir(), "bin")}
	first, second := place(t, door, "one"), place(t, door, "two")
	if first == second {
		t.Errorf("both versions are at %s", first)
	}
	if again := place(t, door, "one"); again != first {
		t.Errorf("the first version is at %s, and at %s when placed again", first, again)
	}
	for path, want := range map[string]string{first: "one", second: "two"} {
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != fs.FileMode(0o755) {
			t.Errorf("%s has mode %v, %v, want 0755", path, info.Mode(), err)
		}
	}
}

func TestPlaceRepairsWhatACrashLeft(t *testing.T) {
	cases := map[string]func(path string) error{
		"a copy without content":     func(path string) error { return os.Truncate(path, 0) },
		"a copy that cannot be run":  func(path string) error { return os.Chmod(path, 0o600) },
		"a version without its file": os.Remove,
		"an attempt that was cut short": func(path string) error {
			beside := filepath.Join(filepath.Dir(filepath.Dir(path)), ".new")
			return os.Rename(filepath.Dir(path), beside)
		},
	}
	for name, damage := range cases {
		t.Run(name, func(t *testing.T) {
			door := hostbin.Door{Dir: t.TempDir()}
			path := place(t, door, "one")
			if err := damage(path); err != nil {
				t.Fatal(err)
			}
			if got := place(t, door, "one"); got != path {
				t.Errorf("it is at %s, want %s", got, path)
			}
			got, err := os.ReadFile(path)
			if err != nil || string(got) != "one" {
				t.Errorf("the copy has %q, %v, want one", got, err)
			}
		})
	}
}

func TestSweepKeepsWhatIsInUse(t *testing.T) {
	door := hostbin.Door{Dir: t.TempDir()}
	used, unused := place(t, door, "one"), place(t, door, "two")
	foreign := filepath.Join(door.Dir, "hook", "notes")
	if err := os.Mkdir(foreign, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := door.Sweep([]string{used, "/usr/bin/another"}); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{used: true, unused: false, foreign: true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: %v, want there: %v", path, err, want)
		}
	}
}

func TestSweepWithoutADirectory(t *testing.T) {
	if err := (hostbin.Door{Dir: filepath.Join(t.TempDir(), "none")}).Sweep(nil); err != nil {
		t.Error(err)
	}
}

func TestPlaceSaysWhatIsMissing(t *testing.T) {
	if _, err := (hostbin.Door{Dir: t.TempDir()}).Place("/does/not/exist"); err == nil {
		t.Error("a program that is not there was placed")
	}
}
