// SPDX-License-Identifier: Apache-2.0

package nvml_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-gpu/sluice/node-agent/nvml"
)

// oldLibraryVariable names the library to the process in which it is opened.
const oldLibraryVariable = "TEST_OLD_LIBRARY"

// TestOpenRefusesALibraryThatLacksCalls opens a library from before MIG. The bindings would end the process at the first
// call that is missing. It runs in a process of its own: the bindings resolve symbols once.
func TestOpenRefusesALibraryThatLacksCalls(t *testing.T) {
	if path := os.Getenv(oldLibraryVariable); path != "" {
		_, err := nvml.Open(path)
		if !errors.Is(err, nvml.ErrFailed) || !strings.Contains(err.Error(), "nvmlSystemGetDriverVersion") {
			t.Errorf("Open answers %v, want %v that names the missing call", err, nvml.ErrFailed)
		}
		return
	}
	dir := t.TempDir()
	source, library := filepath.Join(dir, "old.c"), filepath.Join(dir, "libnvidia-ml.so.1")
	code := "int nvmlInit_v2(void) { return 0; }\n" +
		"int nvmlShutdown(void) { return 0; }\n" +
		"const char *nvmlErrorString(int result) { return result == 0 ? \"Success\" : \"Error\"; }\n"
	if err := os.WriteFile(source, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "cc", "-shared", "-fPIC", "-o", library, source).CombinedOutput(); err != nil {
		t.Fatalf("building the old library: %v\n%s", err, out)
	}
	again := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.count=1")
	again.Env = append(os.Environ(), oldLibraryVariable+"="+library)
	if out, err := again.CombinedOutput(); err != nil {
		t.Errorf("in its own process: %v\n%s", err, out)
	}
}
