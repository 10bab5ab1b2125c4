// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"path/filepath"
	"testing"

	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// TestManifestsApply has the API server check what users apply.
func TestManifestsApply(t *testing.T) {
	if _, err := shared.Kubectl(t.Context(), "apply", "--server-side", "-k", stack.Path("config", "rbac")); err != nil {
		t.Fatal(err) // the namespace must be there for the rest
	}
	for _, dir := range []string{"default", "samples"} {
		t.Run("config/"+dir+" is accepted", func(t *testing.T) {
			if _, err := shared.Kubectl(t.Context(), "apply", "--server-side", "--dry-run=server", "-k", stack.Path("config", dir)); err != nil {
				t.Error(err)
			}
		})
	}
	for _, namespace := range []string{"research", "production"} { // a dry run makes none
		if _, err := shared.Kubectl(t.Context(), "create", "namespace", namespace); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(stack.Path("config", "samples", "*", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no tenants: %v", err)
	}
	for _, file := range append(
		files, stack.Path("config", "samples", "pool_layouts.yaml"), stack.Path("config", "samples", "pool_mps.yaml"),
	) {
		t.Run(filepath.Base(file)+" is accepted", func(t *testing.T) {
			if _, err := shared.Kubectl(t.Context(), "apply", "--server-side", "--dry-run=server", "-f", file); err != nil {
				t.Error(err)
			}
		})
	}
}
