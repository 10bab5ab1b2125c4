// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
)

// Conflict is a class of somebody else that uses a name that pools need.
type Conflict struct {
	// Class is the name of the foreign class.
	Class string
	// ExtendedResource is the extended resource name that both want; "" where the class names are the same.
	ExtendedResource string
	// Pools are the pools that need the name.
	Pools []string
}

// Message says what the conflict means for the pools and how it ends.
func (c Conflict) Message() string {
	if c.ExtendedResource == "" {
		return fmt.Sprintf("DeviceClass %s exists and was not made by Sluice: claims of that class get what it selects, not this pool's devices. Rename or remove it", c.Class)
	}
	return fmt.Sprintf("DeviceClass %s, not made by Sluice, carries extendedResourceName %s: pods that ask for it get that class's devices, not this pool's. Remove the name there, or run the manager with --extended-resources=false",
		c.Class, c.ExtendedResource)
}

// Conflicts are the classes of somebody else among the existing ones that use a name of the needs.
func Conflicts(needs []Need, existing []resourceapi.DeviceClass) []Conflict {
	var conflicts []Conflict
	for _, need := range needs {
		for i := range existing {
			class := &existing[i]
			if Managed(class) {
				continue
			}
			if class.Name == need.Name {
				conflicts = append(conflicts, Conflict{Class: class.Name, Pools: need.Pools})
			}
			if name := class.Spec.ExtendedResourceName; name != nil && need.ExtendedResource != "" && *name == need.ExtendedResource {
				conflicts = append(conflicts, Conflict{Class: class.Name, ExtendedResource: *name, Pools: need.Pools})
			}
		}
	}
	return conflicts
}

// Plan is what has to be done so that the classes are as needed.
type Plan struct {
	// Create and Update are classes as they are to be; those to update carry the existing object's metadata.
	Create, Update []*resourceapi.DeviceClass
	// Delete are classes of Sluice that nothing needs any more.
	Delete []*resourceapi.DeviceClass
}

// Decide compares the needs with the existing classes. A class of somebody else is never touched. Of two classes with
// one extended resource name the API server silently prefers the newer; so that nobody's pods change hands by
// accident, ours goes without the name while somebody else has it.
func Decide(needs []Need, existing []resourceapi.DeviceClass) Plan {
	var plan Plan
	taken := foreignResources(existing)
	for _, need := range needs {
		if taken[need.ExtendedResource] {
			need.ExtendedResource = ""
		}
		want := Render(need)
		i := slices.IndexFunc(existing, func(c resourceapi.DeviceClass) bool { return c.Name == need.Name })
		switch {
		case i < 0:
			plan.Create = append(plan.Create, want)
		case Managed(&existing[i]) && !apiequality.Semantic.DeepEqual(existing[i].Spec, want.Spec):
			update := existing[i].DeepCopy()
			update.Spec = want.Spec
			plan.Update = append(plan.Update, update)
		}
	}
	for i := range existing {
		class := &existing[i]
		needed := slices.ContainsFunc(needs, func(n Need) bool { return n.Name == class.Name })
		// The label marks other objects too; only a name of our form is a class that this package made.
		if Managed(class) && !needed && strings.HasSuffix(class.Name, suffix) {
			plan.Delete = append(plan.Delete, class.DeepCopy())
		}
	}
	return plan
}

func foreignResources(existing []resourceapi.DeviceClass) map[string]bool {
	taken := map[string]bool{}
	for i := range existing {
		if name := existing[i].Spec.ExtendedResourceName; name != nil && !Managed(&existing[i]) {
			taken[*name] = true
		}
	}
	return taken
}

// Missing are the classes that a pool needs and that Sluice has not made, in order.
func Missing(pool string, needs []Need, existing []resourceapi.DeviceClass) []string {
	var missing []string
	for _, need := range needs {
		made := slices.ContainsFunc(existing, func(c resourceapi.DeviceClass) bool {
			return c.Name == need.Name && Managed(&c)
		})
		if slices.Contains(need.Pools, pool) && !made {
			missing = append(missing, need.Name)
		}
	}
	return missing
}
