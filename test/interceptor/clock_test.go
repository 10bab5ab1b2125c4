// SPDX-License-Identifier: Apache-2.0

package interceptor

import (
	"debug/elf"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// TestNoWallClock holds that a jump of the wall clock reaches neither limits nor compute shares: nobody can move it for one
// program alone, so that it cannot be tried.
func TestNoWallClock(t *testing.T) {
	library, err := elf.Open(stack.Path("interceptor", "build", "libsluice.so"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = library.Close() }()
	symbols, err := library.ImportedSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, symbol := range symbols {
		if slices.Contains([]string{"time", "gettimeofday", "ftime", "timespec_get", "pthread_cond_timedwait", "sem_timedwait"}, symbol.Name) {
			t.Errorf("the library asks the wall clock by %s", symbol.Name)
		}
	}
	for _, pattern := range [][]string{
		{"interceptor", "src", "*.[ch]"}, {"interceptor", "include", "*.h"}, {"node-agent", "arbiter", "*.go"}, {"node-agent", "limits", "*.go"},
	} {
		files, err := filepath.Glob(stack.Path(pattern...))
		if err != nil || len(files) == 0 {
			t.Fatalf("no files like %v: %v", pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), "CLOCK_REALTIME") {
				t.Errorf("%s asks the wall clock", file)
			}
		}
	}
}
