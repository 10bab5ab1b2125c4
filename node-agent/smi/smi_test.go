// SPDX-License-Identifier: Apache-2.0

package smi_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/node-agent/nvml"
	"github.com/sluice-gpu/sluice/node-agent/smi"
)

// install makes a driver root with a library and, unless it is "", a tool that runs this script.
func install(t *testing.T, script string) string {
	t.Helper()
	root := t.TempDir()
	write := func(path, text string) {
		full := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write("usr/lib64/libnvidia-ml.so.1", "")
	if script != "" {
		write("usr/bin/nvidia-smi", "#!/bin/sh\n"+script)
	}
	return root
}

func TestSetTimeSlice(t *testing.T) {
	for _, tc := range []struct {
		name  string
		slice v1alpha1.TimeSlice
		want  string
	}{
		{name: "the driver's own", slice: v1alpha1.TimeSliceDefault, want: "compute-policy -i GPU-1 --set-timeslice 0"},
		{name: "short", slice: v1alpha1.TimeSliceShort, want: "compute-policy -i GPU-1 --set-timeslice 1"},
		{name: "medium", slice: v1alpha1.TimeSliceMedium, want: "compute-policy -i GPU-1 --set-timeslice 2"},
		{name: "long", slice: v1alpha1.TimeSliceLong, want: "compute-policy -i GPU-1 --set-timeslice 3"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := install(t, `echo "$@" > "$LD_LIBRARY_PATH/asked"`)
			if err := (&smi.Tool{DriverRoot: root}).SetTimeSlice(t.Context(), "GPU-1", tc.slice); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(filepath.Join(root, "usr/lib64/asked"))
			if err != nil || strings.TrimSpace(string(got)) != tc.want {
				t.Errorf("the tool was asked %q (%v), want %q", got, err, tc.want)
			}
		})
	}
}

func TestWhatCanGoWrong(t *testing.T) {
	t.Run("a tool that fails is quoted", func(t *testing.T) {
		tool := &smi.Tool{DriverRoot: install(t, "echo Not Supported; exit 3")}
		err := tool.SetTimeSlice(t.Context(), "GPU-1", v1alpha1.TimeSliceLong)
		if err == nil || !strings.Contains(err.Error(), "Not Supported") || !strings.Contains(err.Error(), "GPU-1") {
			t.Errorf("SetTimeSlice() = %v", err)
		}
	})
	t.Run("a driver without tools is named", func(t *testing.T) {
		err := (&smi.Tool{DriverRoot: install(t, "")}).SetTimeSlice(t.Context(), "GPU-1", v1alpha1.TimeSliceLong)
		if !errors.Is(err, smi.ErrNotFound) {
			t.Errorf("SetTimeSlice() = %v", err)
		}
	})
	t.Run("a root without a driver is named", func(t *testing.T) {
		root := install(t, "exit 0")
		if err := os.Remove(filepath.Join(root, "usr/lib64/libnvidia-ml.so.1")); err != nil {
			t.Fatal(err)
		}
		err := (&smi.Tool{DriverRoot: root}).SetTimeSlice(t.Context(), "GPU-1", v1alpha1.TimeSliceLong)
		if !errors.Is(err, nvml.ErrNotFound) {
			t.Errorf("SetTimeSlice() = %v", err)
		}
	})
	t.Run("an unknown time slice is refused", func(t *testing.T) {
		if err := (&smi.Tool{DriverRoot: install(t, "exit 0")}).SetTimeSlice(t.Context(), "GPU-1", "Forever"); err == nil {
			t.Error("SetTimeSlice() = nil")
		}
	})
}
