// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/internal/memlimits"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
)

// limitsDoor answers as a driver does that was tried with some outcome.
type limitsDoor struct {
	probe    memlimits.Probe
	released []string
	fails    error
}

func (d *limitsDoor) HeldBy(_ context.Context, form v1alpha1.GPUDecision, facts checkpoint.Facts) v1alpha1.GPUMemoryLimits {
	return memlimits.Decide(form, facts.DriverVersion, d.probe)
}

func (d *limitsDoor) Release(_ context.Context, uid string) error {
	d.released = append(d.released, uid)
	return d.fails
}

func TestWhoHoldsMemoryLimits(t *testing.T) {
	works := memlimits.Probe{Answer: memlimits.Works, Backend: v1alpha1.LimitsBackendMisc}
	for _, tc := range []struct {
		name    string
		mode    v1alpha1.MemoryLimits
		sharing v1alpha1.SharingMode
		probe   memlimits.Probe
		ask     bool
		refused string
	}{
		{name: "where the driver can, it is asked for at the start", probe: works, ask: true},
		{name: "where it cannot, nobody is asked", probe: memlimits.Probe{Answer: memlimits.Unsupported}},
		{name: "nor where the pool leaves it to the library", mode: v1alpha1.MemoryLimitsInterceptor, probe: works},
		{name: "nor where nothing is held", sharing: v1alpha1.SharingTimeSlicing, probe: works},
		{name: "nor under MPS", sharing: v1alpha1.SharingMPS, probe: works},
		{name: "a pool that demands the driver gets it", mode: v1alpha1.MemoryLimitsDriver, probe: works, ask: true},
		{name: "or nothing", mode: v1alpha1.MemoryLimitsDriver, probe: memlimits.Probe{Answer: memlimits.Unsupported}, refused: "install driver R615 or newer"},
		{name: "nor where the driver does not answer", mode: v1alpha1.MemoryLimitsDriver, refused: "the driver has not answered yet"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			form := shared()
			form.MemoryLimits = tc.mode
			if tc.sharing != "" {
				form.Sharing = tc.sharing
			}
			o := newOutside([]gpu.GPU{h100(0)}, form)
			o.limits.probe = tc.probe
			c := claim("a", device("gpu-0", amount("10Gi", "30")))
			_, err := o.preparer().Prepare(t.Context(), c)
			if tc.refused != "" {
				if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), tc.refused) {
					t.Errorf("Prepare() = %v, want %q", err, tc.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := o.specs["uid-a"][0].Ask; got != tc.ask {
				t.Errorf("the agent is asked at the start: %v, want %v", got, tc.ask)
			}
			r := o.recorded.Claims["uid-a"].Results[0]
			if byDriver(r) != tc.ask || r.MustHold != (tc.mode == v1alpha1.MemoryLimitsDriver) {
				t.Errorf("recorded %+v", r)
			}
			if err := o.preparer().Unprepare(t.Context(), "uid-a"); err != nil {
				t.Fatal(err)
			}
			var released []string
			if tc.ask {
				released = []string{"uid-a"}
			}
			if diff := cmp.Diff(released, o.limits.released); diff != "" {
				t.Errorf("released (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAReleaseDoesNotWaitForTheDriver(t *testing.T) {
	o := newOutside([]gpu.GPU{h100(0)}, shared())
	o.limits.probe = memlimits.Probe{Answer: memlimits.Works, Backend: v1alpha1.LimitsBackendDmem}
	o.mustPrepare(t, claim("a", device("gpu-0", amount("10Gi", "30"))))
	o.limits.fails = errInjected
	if err := o.preparer().Unprepare(t.Context(), "uid-a"); err != nil {
		t.Errorf("Unprepare() = %v", err)
	}
}
