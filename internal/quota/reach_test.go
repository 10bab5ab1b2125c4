// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"testing"

	resourceapi "k8s.io/api/resource/v1"
)

func TestMayReach(t *testing.T) {
	for _, tc := range []struct {
		name      string
		selectors []string
		unknown   bool
		want      bool
	}{
		{name: "a class that is not there may mean anything", unknown: true, want: true},
		{name: "a class without selectors reaches every device", want: true},
		{name: "Sluice's driver", selectors: []string{`device.driver == "gpu.sluice.dev"`}, want: true},
		{name: "another driver", selectors: []string{`device.driver == "net.example.com"`}},
		{name: "another driver, and more", selectors: []string{`device.driver == 'net.example.com' && device.attributes["a"].b == 1`}},
		{name: "another driver in one of several selectors", selectors: []string{`true`, "  device.driver=='net.example.com'"}},
		{name: "another driver, or anything", selectors: []string{`device.driver == "net.example.com" || true`}, want: true},
		{name: "another driver in a choice", selectors: []string{`device.driver == "net.example.com" && false ? false : true`}, want: true},
		{name: "no other driver", selectors: []string{`device.driver != "net.example.com"`}, want: true},
		{name: "another driver's name with a sum", selectors: []string{`device.driver == "gpu." + "sluice.dev"`}, want: true},
		{name: "a name that is spelled with escapes", selectors: []string{`device.driver == "\x67pu.sluice.dev"`}, want: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			class := &resourceapi.DeviceClass{}
			for _, expression := range tc.selectors {
				class.Spec.Selectors = append(class.Spec.Selectors, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: expression}})
			}
			lookUp := func(string) *resourceapi.DeviceClass {
				if tc.unknown {
					return nil
				}
				return class
			}
			exactly := &resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{
				{Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "c"}},
			}}}
			alternatives := &resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{
				{FirstAvailable: []resourceapi.DeviceSubRequest{{DeviceClassName: "c"}}},
			}}}
			for _, spec := range []*resourceapi.ResourceClaimSpec{exactly, alternatives} {
				if got := MayReach(spec, lookUp); got != tc.want {
					t.Errorf("want %v, got %v", tc.want, got)
				}
			}
		})
	}
}
