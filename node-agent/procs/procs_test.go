// SPDX-License-Identifier: Apache-2.0

package procs_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-gpu/sluice/node-agent/procs"
)

func TestName(t *testing.T) {
	for _, tc := range []struct{ name, command, want string }{
		{name: "a command", command: "python3\n", want: "python3 (7)"},
		{name: "a command that would spoil a status is cleaned", command: "a\x1b[31m\xff\n", want: "a?[31m? (7)"},
		{name: "a command of nothing but spaces is none", command: "  \n", want: "process (7)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			proc := t.TempDir()
			if err := os.Mkdir(filepath.Join(proc, "7"), 0o750); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(proc, "7", "comm"), []byte(tc.command), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := procs.Name(proc, 7); got != tc.want {
				t.Errorf("Name() = %q, want %q", got, tc.want)
			}
		})
	}
	t.Run("a process that has ended", func(t *testing.T) {
		if got := procs.Name(t.TempDir(), 7); got != "process (7)" {
			t.Errorf("Name() = %q", got)
		}
	})
}
