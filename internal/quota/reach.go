// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"regexp"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// MayReach says whether a claim may get devices of Sluice. It does not where each of its classes demands another driver,
// which no selector of the claim can undo. A class that is not known may mean anything.
func MayReach(spec *resourceapi.ResourceClaimSpec, class func(name string) *resourceapi.DeviceClass) bool {
	reaches := func(name string) bool {
		known := class(name)
		return known == nil || !demandsOtherDriver(known)
	}
	for i := range spec.Devices.Requests {
		r := &spec.Devices.Requests[i]
		if r.Exactly != nil && reaches(r.Exactly.DeviceClassName) {
			return true
		}
		for j := range r.FirstAvailable {
			if reaches(r.FirstAvailable[j].DeviceClassName) {
				return true
			}
		}
	}
	return false
}

// demandsOtherDriver reads the form in which classes name their driver: the beginning of a selector all of whose parts
// must hold. Any other form may demand anything.
func demandsOtherDriver(class *resourceapi.DeviceClass) bool {
	driver := regexp.MustCompile(`^\s*device\.driver\s*==\s*["']([^"'\\]*)["']\s*(&&|$)`)
	for i := range class.Spec.Selectors {
		cel := class.Spec.Selectors[i].CEL
		if cel == nil || strings.ContainsAny(cel.Expression, "|?") {
			continue
		}
		if named := driver.FindStringSubmatch(cel.Expression); named != nil && named[1] != v1alpha1.DriverName {
			return true
		}
	}
	return false
}
