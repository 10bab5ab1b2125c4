// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-gpu/sluice/internal/gpu"
)

// mounted are the paths in the container of the first device of a claim.
func (o *outside) mounted(uid string) []string {
	var paths []string
	for _, m := range o.specs[uid][0].Mounts {
		paths = append(paths, m.ContainerPath)
	}
	return paths
}

func TestAShareKeepsItsVersionOfTheLibrary(t *testing.T) {
	o := newOutside([]gpu.GPU{h100(0)}, shared())
	o.mustPrepare(t, claim("a", device("gpu-0", amount("10Gi", "30"))))
	o.own = "v2"
	o.mustPrepare(t, claim("b", device("gpu-0", amount("10Gi", "30"))))
	if a, b := o.recorded.Claims["uid-a"].Library, o.recorded.Claims["uid-b"].Library; a != "v1" || b != "v2" {
		t.Errorf("the claims were prepared with %q and %q, want v1 and v2", a, b)
	}
	delete(o.specs, "uid-a")
	if err := o.preparer().Maintain(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"/run/sluice/uid-a/0/limits", "/run/sluice/uid-a/0/usage", "/run/sluice/uid-a/0/bell", "/inside/v1.so",
		"/run/sluice/heartbeat", "/etc/ld.so.preload",
	}
	if diff := cmp.Diff(want, o.mounted("uid-a")); diff != "" {
		t.Errorf("mounts after the spec was written anew (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"v1", "v2"}, o.placed); diff != "" {
		t.Errorf("placed versions (-want +got):\n%s", diff)
	}
	if err := o.preparer().Unprepare(t.Context(), "uid-a"); err != nil {
		t.Fatal(err)
	}
	if err := o.preparer().Maintain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"v2"}, o.placed); diff != "" {
		t.Errorf("placed versions after the last claim of v1 (-want +got):\n%s", diff)
	}
}

func TestAVersionThatIsGoneIsReplaced(t *testing.T) {
	o := newOutside([]gpu.GPU{h100(0)}, shared())
	o.mustPrepare(t, claim("a", device("gpu-0", amount("10Gi", "30"))))
	// As after the file system of the shares was mounted anew under a newer agent.
	o.own, o.placed = "v2", nil
	clear(o.shares)
	if err := o.preparer().Maintain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := o.recorded.Claims["uid-a"].Library; got != "v2" {
		t.Errorf("the claim is recorded with %q, want v2", got)
	}
	if got := o.mounted("uid-a")[3]; got != "/inside/v2.so" {
		t.Errorf("its containers start with %q", got)
	}
}

func TestWithoutALibraryThereIsOnlyThePage(t *testing.T) {
	o := newOutside([]gpu.GPU{h100(0)}, shared())
	o.own = ""
	o.mustPrepare(t, claim("a", device("gpu-0", amount("10Gi", "30"))))
	if diff := cmp.Diff([]string{"/run/sluice/uid-a/0/limits"}, o.mounted("uid-a")); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
	if o.shares["uid-a"][0].Enforce == 0 {
		t.Error("the share does not say that it is to be held")
	}
}

func TestTheLibraryIsNoConcernOfOtherForms(t *testing.T) {
	o := newOutside([]gpu.GPU{h100(0)}, exclusive())
	o.failAt = 0 // placing it would be the first call
	if _, err := o.preparer().Prepare(t.Context(), claim("a", device("gpu-0"))); err != nil {
		if o.calls[0] == "place library" {
			t.Error("an exclusive GPU waits for the library")
		}
	}
}
