// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/mps/watch"
	"github.com/sluice-gpu/sluice/node-agent/publish"
	"github.com/sluice-gpu/sluice/node-agent/report"
)

func facts() checkpoint.Facts {
	return checkpoint.Facts{
		UUID: "GPU-0", Minor: 0, Product: "NVIDIA H100", Architecture: "Hopper", MemoryBytes: 80 << 30, ComputeSlices: 7,
		Profiles: []checkpoint.Profile{
			{Name: "3g.40gb", MemoryBytes: 40 << 30, ComputeSlices: 3, MemorySlices: 4, Starts: []int{0, 4}, Max: 2},
			{
				Name: "1g.10gb", MemoryBytes: 10 << 30, ComputeSlices: 1, MemorySlices: 1, Starts: []int{0, 1, 2, 3, 4, 5, 6}, Max: 7,
				Decoders: 1,
			},
		},
	}
}

func outcome(change ...func(*publish.Outcome)) publish.Outcome {
	o := publish.Outcome{
		Facts: facts(), Seen: &gpu.GPU{UUID: "GPU-0", MIGMode: gpu.MIGDisabled}, Minor: 0,
		Form: &v1alpha1.GPUDecision{UUID: "GPU-0", Pool: "shared"}, Decided: true, AsDecided: true, Reason: v1alpha1.ReasonPublished,
	}
	for _, c := range change {
		c(&o)
	}
	return o
}

func withheld(reason, message string) func(*publish.Outcome) {
	return func(o *publish.Outcome) { o.Form, o.AsDecided, o.Reason, o.Message = nil, false, reason, message }
}

func good(change ...func(*report.Facts)) report.Facts {
	f := report.Facts{
		Now: metav1.NewTime(time.Unix(1000, 0)), Generation: 7, Outcomes: []publish.Outcome{outcome()}, DriverVersion: "580",
		Published: map[string]v1alpha1.PublishedForm{"GPU-0": {Pool: "shared"}}, Settled: true, InUse: map[string]int{"GPU-0": 2},
		LibraryVersion: "v1",
	}
	for _, c := range change {
		c(&f)
	}
	return f
}

func TestStatus(t *testing.T) {
	got := report.Status(good())
	got.Conditions = nil
	want := v1alpha1.GPUNodeStatus{
		ObservedGeneration: 7, DriverVersion: "580", Products: "1 × NVIDIA H100", Summary: "1/1 GPUs",
		GPUs: []v1alpha1.GPUStatus{{
			UUID: "GPU-0", Minor: ptr.To[int32](0), Product: "NVIDIA H100", Architecture: "Hopper",
			Memory: resource.NewQuantity(80<<30, resource.BinarySI), MIGMode: v1alpha1.MIGDisabled, Tenants: ptr.To[int32](2),
			Published: v1alpha1.PublishedForm{Pool: "shared"}, Reason: v1alpha1.ReasonPublished,
		}},
		Profiles: []v1alpha1.MIGProfile{
			{
				Product: "NVIDIA H100", Name: "1g.10gb", Memory: resource.NewQuantity(10<<30, resource.BinarySI), Compute: 14,
				ComputeSlices: 1, MemorySlices: 1, Starts: []int32{0, 1, 2, 3, 4, 5, 6}, Max: 7,
				Engines: v1alpha1.MediaEngines{Decoders: ptr.To[int32](1)},
			},
			{
				Product: "NVIDIA H100", Name: "3g.40gb", Memory: resource.NewQuantity(40<<30, resource.BinarySI), Compute: 42,
				ComputeSlices: 3, MemorySlices: 4, Starts: []int32{0, 4}, Max: 2,
			},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestConditions(t *testing.T) {
	for _, tc := range []struct {
		name  string
		facts report.Facts
		want  map[string]string // condition: status and reason, and part of the message
	}{
		{
			name: "all is well", facts: good(),
			want: map[string]string{"Ready": "True Published 1 of 1", "DriverAvailable": "True NVMLAvailable", "ForeignDriver": "False NoForeignDriver", "MIGModeOff": "False MIGModeAsNeeded", "Enforcing": "True LibraryPlaced version v1"},
		},
		{
			name: "no pool holds a GPU",
			facts: good(func(f *report.Facts) {
				f.Outcomes[0] = outcome(withheld(v1alpha1.ReasonNoPool, ""))
				f.Outcomes[0].Decided = false
			}),
			want: map[string]string{"Ready": "True NoPool"},
		},
		{
			name:  "slices are being written",
			facts: good(func(f *report.Facts) { f.Settled = false; f.PublishError = "no fields" }),
			want:  map[string]string{"Ready": "False Publishing no fields"},
		},
		{
			name:  "a GPU is not published as decided",
			facts: good(func(f *report.Facts) { f.Outcomes[0] = outcome(withheld(v1alpha1.ReasonMIGModeOn, "MIG mode is on")) }),
			want:  map[string]string{"Ready": "False MIGModeOn gpu-0 (GPU-0): MIG mode is on"},
		},
		{
			name: "a GPU keeps an old form because it is in use",
			facts: good(func(f *report.Facts) {
				f.Outcomes[0].Decided, f.Outcomes[0].AsDecided, f.Outcomes[0].Reason = false, false, v1alpha1.ReasonInUse
			}),
			want: map[string]string{"Ready": "False InUse"},
		},
		{
			name:  "a GPU waits for MIG mode",
			facts: good(func(f *report.Facts) { f.Outcomes[0] = outcome(withheld(v1alpha1.ReasonMIGModeOff, "run nvidia-smi")) }),
			want:  map[string]string{"Ready": "False MIGModeOff", "MIGModeOff": "True MIGModeOff gpu-0 (GPU-0): run nvidia-smi"},
		},
		{
			name: "NVML is not there",
			facts: good(func(f *report.Facts) {
				f.DriverFailed, f.DriverMessage = v1alpha1.ReasonNVMLNotFound, "tried /usr/lib64"
			}),
			want: map[string]string{"Ready": "False NVMLNotFound", "DriverAvailable": "False NVMLNotFound tried /usr/lib64"},
		},
		{
			name:  "one GPU of several is sick",
			facts: good(func(f *report.Facts) { f.DriverMessage = "GPU 3: lost" }),
			want:  map[string]string{"DriverAvailable": "True NVMLAvailable GPU 3: lost"},
		},
		{
			name:  "the agent was started without the library",
			facts: good(func(f *report.Facts) { f.LibraryVersion = "" }),
			want:  map[string]string{"Ready": "True Published", "Enforcing": "False NoLibrary --library"},
		},
		{
			name:  "the library cannot be placed",
			facts: good(func(f *report.Facts) { f.LibraryFailed = errors.New("no space left") }),
			want:  map[string]string{"Ready": "True Published", "Enforcing": "False LibraryFailed no space left"},
		},
		{
			name:  "no GPU is shared by MPS",
			facts: good(),
			want:  map[string]string{"MPSServing": "True MPSNotUsed"},
		},
		{
			name:  "GPUs are shared by MPS",
			facts: good(func(f *report.Facts) { f.MPS.Devices = 2 }),
			want:  map[string]string{"Ready": "True Published", "MPSServing": "True MPSServing 2 devices"},
		},
		{
			name:  "the node cannot share by MPS as it is to",
			facts: good(func(f *report.Facts) { f.MPSFailed = errors.New("there is no nvidia-cuda-mps-control") }),
			want:  map[string]string{"Ready": "True Published", "MPSServing": "False MPSProgramMissing no nvidia-cuda-mps-control"},
		},
		{
			name: "the worst of what is wrong with MPS is told",
			facts: good(func(f *report.Facts) {
				f.MPS = watch.Report{Devices: 1, Findings: []watch.Finding{
					{Reason: v1alpha1.ReasonMPSBypassed, Message: "gpu-0: python (30)"}, {Reason: v1alpha1.ReasonMPSFault},
				}}
			}),
			want: map[string]string{"Ready": "True Published", "MPSServing": "False MPSBypassed python (30) (and 1 more findings)"},
		},
		{
			name:  "another driver hands out the GPUs",
			facts: good(func(f *report.Facts) { f.Foreign = "DRA driver x" }),
			want:  map[string]string{"Ready": "False ForeignDriver", "ForeignDriver": "True ForeignDriver DRA driver x"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := report.Status(tc.facts)
			if len(s.Conditions) != 8 {
				t.Errorf("%d conditions, want all 8", len(s.Conditions))
			}
			for condition, want := range tc.want {
				c := meta.FindStatusCondition(s.Conditions, condition)
				if c == nil {
					t.Fatalf("no condition %s", condition)
				}
				parts := strings.SplitN(want, " ", 3)
				if string(c.Status) != parts[0] || c.Reason != parts[1] || (len(parts) > 2 && !strings.Contains(c.Message, parts[2])) {
					t.Errorf("%s is %s %s %q, want %s", condition, c.Status, c.Reason, c.Message, want)
				}
			}
		})
	}
}

func TestTheObservedGenerationWaitsForTheSlices(t *testing.T) {
	f := good(func(f *report.Facts) { f.Settled = false; f.Before.ObservedGeneration = 6 })
	if got := report.Status(f).ObservedGeneration; got != 6 {
		t.Errorf("observed generation is %d before the slices are written", got)
	}
}

func TestAConditionThatStaysKeepsItsTime(t *testing.T) {
	first := report.Status(good())
	second := report.Status(good(func(f *report.Facts) { f.Before = first; f.Now = metav1.NewTime(time.Unix(2000, 0)) }))
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("nothing has changed, but the status has (-first +second):\n%s", diff)
	}
}

func TestTextsStayWithinTheirBounds(t *testing.T) {
	long := strings.Repeat("€", 2000)
	f := good(func(f *report.Facts) {
		f.Outcomes[0] = outcome(withheld(v1alpha1.ReasonMIGModeOff, long))
		f.Outcomes[0].Facts.Product = long
		f.DriverFailed, f.DriverMessage = v1alpha1.ReasonNVMLFailed, long
	})
	s := report.Status(f)
	for name, text := range map[string]string{"products": s.Products, "message": s.GPUs[0].Message, "condition": s.Conditions[0].Message} {
		if len(text) > 1024 || !strings.HasSuffix(text, "…") {
			t.Errorf("%s has %d bytes and ends in %q", name, len(text), text[len(text)-3:])
		}
	}
}
