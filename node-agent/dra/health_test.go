// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	testclock "k8s.io/utils/clock/testing"
)

func TestKubeletIsToldAndToldAgain(t *testing.T) {
	clock := testclock.NewFakeClock(time.Unix(1000, 0))
	h := &Health{NodeName: "node", Clock: clock}
	ctx, cancel := context.WithCancel(t.Context())
	reports := make(chan kubeletplugin.DeviceHealthReport)
	ended := make(chan error, 1)
	go func() { ended <- h.watch(ctx, reports) }()

	// The time goes by between looks, so that it does whenever the watch begins to wait.
	expect := func(when string, want ...kubeletplugin.DeviceHealth) {
		t.Helper()
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for range 10_000 {
			select {
			case got := <-reports:
				if diff := cmp.Diff(want, got.Devices, cmpopts.IgnoreFields(kubeletplugin.DeviceHealth{}, "LastUpdated")); diff != "" {
					t.Errorf("told %s (-want +got):\n%s", when, diff)
				}
				return
			case <-tick.C:
				clock.Step(healthPeriod)
			}
		}
		t.Fatalf("kubelet is told nothing %s", when)
	}
	h.Report([]DeviceHealth{{Device: "gpu-0", Healthy: true}})
	expect("at first", device("gpu-0", kubeletplugin.HealthStatusHealthy, ""))
	h.Report([]DeviceHealth{{Device: "gpu-0", Message: "off the bus"}})
	expect("with a change", device("gpu-0", kubeletplugin.HealthStatusUnhealthy, "off the bus"))
	expect("again in time", device("gpu-0", kubeletplugin.HealthStatusUnhealthy, "off the bus"))
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("watching ended with %v", err)
	}
}

func device(name string, status kubeletplugin.HealthStatus, message string) kubeletplugin.DeviceHealth {
	return kubeletplugin.DeviceHealth{PoolName: "node", DeviceName: name, Health: status, Message: message}
}
