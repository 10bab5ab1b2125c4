// SPDX-License-Identifier: Apache-2.0

package sharefs

import (
	"bufio"
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestTopmost(t *testing.T) {
	const (
		bind = "501 480 0:25 /sluice /run/sluice rw,nosuid,nodev shared:13 - tmpfs none rw,size=3276800k,mode=755"
		own  = "502 501 0:61 / /run/sluice rw,nosuid,nodev shared:210 - tmpfs sluice rw,size=262144k,mode=711"
		disk = "503 480 8:1 / /run/sluice rw - ext4 /dev/sda1 rw"
	)
	cases := map[string]struct {
		lines []string
		kind  string
		want  bool
	}{
		"nothing is mounted there":          {lines: []string{"480 1 0:25 / /run rw shared:13 - tmpfs none rw"}},
		"a directory of the node's /run":    {lines: []string{bind}},
		"a tmpfs over such a directory":     {lines: []string{bind, own}, want: true},
		"a tmpfs of an earlier agent":       {lines: []string{own}, want: true},
		"something else lies over a tmpfs":  {lines: []string{own, disk}},
		"a tmpfs of the agent's, asked for": {lines: []string{own}, kind: "tmpfs sluice ", want: true},
		"a tmpfs of the administrator's":    {lines: []string{bind, strings.Replace(own, "tmpfs sluice", "tmpfs none", 1)}, kind: "tmpfs sluice "},
		"a line that is no mount":           {lines: []string{"x", ""}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			kind := cmp.Or(tc.kind, "tmpfs ")
			got, err := topmost(bufio.NewScanner(strings.NewReader(strings.Join(tc.lines, "\n"))), "/run/sluice/", kind)
			if err != nil || got != tc.want {
				t.Errorf("got %v, %v, want %v", got, err, tc.want)
			}
		})
	}
}

func TestMountLeavesSharesWhereTheyAre(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "lib"), 0o700); err != nil {
		t.Fatal(err)
	}
	if mounted, err := Mount(dir, 1<<20); err != nil || mounted {
		t.Errorf("got %v, %v, want nothing mounted", mounted, err)
	}
}

func TestMountOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "shares")
	mounted, err := Mount(dir, 1<<20)
	if errors.Is(err, unix.EPERM) {
		t.Skip("mounting is not allowed here")
	}
	if err != nil || !mounted {
		t.Fatalf("got %v, %v, want it mounted", mounted, err)
	}
	t.Cleanup(func() {
		for range 2 { // it is tried again and again
			if err := Unmount(dir, ""); err != nil {
				t.Error(err)
			}
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			t.Errorf("the directory has %v, %v, want it empty", entries, err)
		}
	})
	if mounted, err := Mount(dir, 1<<20); err != nil || mounted {
		t.Errorf("the second time: %v, %v, want nothing mounted", mounted, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "large"), make([]byte, 2<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("2 MiB in 1: %v, want %v", err, unix.ENOSPC)
	}
}
