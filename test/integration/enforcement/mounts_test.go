// SPDX-License-Identifier: Apache-2.0

package enforcement_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/node-agent/limits"
	"github.com/sluice-gpu/sluice/test/framework/container"
)

// ours are the mounts that are Sluice's, and whether they can be written.
func ours(plan container.Plan) []string {
	var found []string
	for _, m := range plan.Mounts {
		if strings.HasPrefix(m.ContainerPath, limits.ContainerRoot) || m.ContainerPath == "/etc/ld.so.preload" {
			found = append(found, m.ContainerPath+" "+m.Options[0])
		}
	}
	return found
}

// TestOtherFormsStartWithoutTheLibrary has only the page, which says that nothing is held.
func TestOtherFormsStartWithoutTheLibrary(t *testing.T) {
	timeSlicing := shared()
	timeSlicing.Sharing = v1alpha1.SharingTimeSlicing
	n := newNode(t, exclusive(), timeSlicing)
	for _, claim := range []struct{ name, index string }{{name: "whole"}, {name: "sliced"}} {
		result := device("gpu-0")
		if claim.name == "sliced" {
			result = share("gpu-1")
		}
		plan := n.prepare(t, n.Allocate(claim.name, result))
		want := []string{"/run/sluice/uid-" + claim.name + "/0/limits ro"}
		if diff := cmp.Diff(want, ours(plan)); diff != "" {
			t.Errorf("mounts of %s (-want +got):\n%s", claim.name, diff)
		}
		p := run(t, plan, "40")
		p.arrives(t, "ready")
		if s := p.next(t, "full"); s.Pieces != 40 || s.Error != 0 {
			t.Errorf("%s had %d pieces before error %d, want 40 of 40", claim.name, s.Pieces, s.Error)
		}
	}
}

// TestAnAgentWithoutALibraryLimitsNobody counts shares only, and says so in the page that nobody reads.
func TestAnAgentWithoutALibraryLimitsNobody(t *testing.T) {
	n := newNode(t, shared())
	n.agent.Kill()
	n.Library = ""
	n.agent = n.Start(t)
	plan := n.prepare(t, n.Allocate("claim", share("gpu-0")))
	if diff := cmp.Diff([]string{"/run/sluice/uid-claim/0/limits ro"}, ours(plan)); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
	p := run(t, plan, "40")
	p.arrives(t, "ready")
	if s := p.next(t, "full"); s.Pieces != 40 {
		t.Errorf("it had %d pieces, want 40", s.Pieces)
	}
}

func TestAMissingLibraryIsNoWayOut(t *testing.T) {
	n := newNode(t, exclusive(), shared())
	n.agent.Kill()
	n.Library = filepath.Join(n.Dir, "missing.so")
	n.agent = n.Start(t)
	if _, err := n.agent.Prepare(t.Context(), n.Allocate("claim", share("gpu-1"))); err == nil || !strings.Contains(err.Error(), n.Library) {
		t.Errorf("a share without its library: %v", err)
	}
	n.prepare(t, n.Allocate("whole", device("gpu-0")))
}

// TestAnUpgradeLeavesRunningSharesTheirLibrary replaces the agent by one with another build, before and after the old one
// has ended.
func TestAnUpgradeLeavesRunningSharesTheirLibrary(t *testing.T) {
	n := newNode(t, shared())
	before := library(t, n.prepare(t, n.Allocate("before", share("gpu-0"))))
	n.Library = newerThan(t, n.Library)
	old := n.agent
	n.agent = n.StartAs(t, "newer")
	if got := library(t, n.prepare(t, n.Allocate("beside", share("gpu-0")))); got != before {
		t.Errorf("beside the active agent a share gets %s, want its %s", got, before)
	}
	old.Kill()
	n.agent.Kill()
	n.agent = n.Start(t)
	plan := n.prepare(t, n.Allocate("after", share("gpu-0")))
	if got := library(t, plan); got == before {
		t.Errorf("after the upgrade a share gets %s still", got)
	}
	if s := run(t, plan).arrives(t, "ready"); s.Total != limit {
		t.Errorf("under the newer library a process is told of %d bytes", s.Total)
	}
	p := run(t, n.prepare(t, n.Allocate("before", share("gpu-0"))))
	if s := p.arrives(t, "ready"); s.Total != limit {
		t.Errorf("a container that starts again under the older one is told of %d bytes", s.Total)
	}
	if got := len(versions(t, n)); got != 2 {
		t.Errorf("%d versions are on the node, want 2", got)
	}
	for _, name := range []string{"before", "beside"} {
		if err := n.agent.Unprepare(t.Context(), n.Allocate(name)); err != nil {
			t.Fatal(err)
		}
	}
	n.agent.Kill()
	n.agent = n.Start(t)
	if got := len(versions(t, n)); got != 1 {
		t.Errorf("%d versions are on the node after the last share of the older one, want 1", got)
	}
}

// newerThan is another build of the library: what follows a shared object does not matter to who loads it.
func newerThan(t *testing.T, library string) string {
	t.Helper()
	build, err := os.ReadFile(library)
	if err != nil {
		t.Fatal(err)
	}
	newer := filepath.Join(t.TempDir(), "newer.so")
	if err := os.WriteFile(newer, append(build, "newer"...), 0o600); err != nil { //nolint:gosec // G703: both paths are the test's own
		t.Fatal(err)
	}
	return newer
}

// library is the path of the library in a container.
func library(t *testing.T, plan container.Plan) string {
	t.Helper()
	for _, m := range plan.Mounts {
		if strings.HasSuffix(m.ContainerPath, "/libsluice.so") {
			return m.ContainerPath
		}
	}
	t.Fatal("the container has no library")
	return ""
}

func versions(t *testing.T, n *node) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(n.Dir, "shares", limits.LibraryDir, "*", "libsluice.so"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestAUserWithoutRightsWorksWithItsShare is what most containers run as.
func TestAUserWithoutRightsWorksWithItsShare(t *testing.T) {
	n := newNode(t, shared())
	plan := n.prepare(t, n.Allocate("claim", share("gpu-0")))
	plan.User = 12345
	// The fake driver's state stands for the driver, which everybody may use. The directories above it are the container's.
	if err := os.Chmod(filepath.Dir(n.Node.State), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(n.Node.State, 0o666); err != nil {
		t.Fatal(err)
	}
	p := run(t, plan)
	p.arrives(t, "ready")
	if s := p.next(t, "full"); s.Pieces != fits(limit, 1, 0) || s.Error != outOfMemory {
		t.Errorf("it had %d pieces before error %d, want %d", s.Pieces, s.Error, fits(limit, 1, 0))
	}
}
