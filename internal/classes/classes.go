// SPDX-License-Identifier: Apache-2.0

// Package classes decides which DeviceClasses the pools need, how they select devices, and which classes of somebody
// else stand in their way.
package classes

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/assign"
	"github.com/sluice-gpu/sluice/internal/timetable"
)

const (
	suffix         = ".sluice.dev"
	migPrefix      = "mig-"
	extendedDomain = "nvidia.com/"

	// WholeGPUs is the class of every exclusive whole GPU, whatever its pool.
	WholeGPUs = v1alpha1.DriverName
	// wholeGPUResource is the extended resource that means one of WholeGPUs.
	wholeGPUResource = extendedDomain + "gpu"
)

// ForPool is the name of the class of a pool of whole GPUs, shared or exclusive.
func ForPool(pool string) string { return pool + suffix }

// ForProfile is the name of the class of all MIG instances of a profile. A class name cannot hold the + of 1g.10gb+me.
func ForProfile(profile string) string { return migPrefix + nameOf(profile) + suffix }

func nameOf(profile string) string { return strings.ReplaceAll(profile, "+", ".") }

// Need is a class that pools need.
type Need struct {
	// Name is the class's name.
	Name string
	// Selector is the CEL expression of the devices that the class means.
	Selector string
	// ExtendedResource is the extended resource that means a device of the class; "" for none.
	ExtendedResource string
	// Pools are the names of the pools that need the class, in order.
	Pools []string
}

// Needs are the classes that the pools need, ordered by name. extended says whether they carry extended resource names.
//
// A pool of whole GPUs, or of MIG instances that are shared, has a class of its own as long as it exists or any GPU is still
// decided for it. Exclusive pools share one class more, of all exclusive GPUs. MIG instances that are given whole have one
// class a profile, for the profiles that the boards in their pools offer.
func Needs(pools []v1alpha1.GPUPool, nodes []v1alpha1.GPUNode, extended bool) []Need {
	needs := map[string]*Need{}
	add := func(need Need, pool string) {
		if !extended {
			need.ExtendedResource = ""
		}
		if needs[need.Name] == nil {
			needs[need.Name] = &need
		}
		if n := needs[need.Name]; !slices.Contains(n.Pools, pool) {
			n.Pools = append(n.Pools, pool)
		}
	}
	held := holders(nodes)
	for i := range pools {
		pool := &pools[i]
		if !pool.DeletionTimestamp.IsZero() && !held[pool.Name] {
			continue
		}
		gives := givenBy(pool)
		if gives == (given{}) {
			continue
		}
		add(poolNeed(pool, gives), pool.Name)
		if gives.exclusive {
			add(wholeNeed(), pool.Name)
		}
	}
	for profile, names := range profiles(nodes) {
		for _, pool := range names {
			add(profileNeed(profile), pool)
		}
	}
	return sorted(needs)
}

func sorted(needs map[string]*Need) []Need {
	ordered := make([]Need, 0, len(needs))
	for _, need := range needs {
		slices.Sort(need.Pools)
		ordered = append(ordered, *need)
	}
	slices.SortFunc(ordered, func(a, b Need) int { return strings.Compare(a.Name, b.Name) })
	return ordered
}

// holders are the pools for which a GPU is decided on any node.
func holders(nodes []v1alpha1.GPUNode) map[string]bool {
	held := map[string]bool{}
	for i := range nodes {
		for _, d := range nodes[i].Decisions() {
			held[d.Pool] = true
		}
	}
	return held
}

// profiles are the MIG profiles that the boards in MIG pools offer, with the pools.
func profiles(nodes []v1alpha1.GPUNode) map[string][]string {
	found := map[string][]string{}
	for i := range nodes {
		node := &nodes[i]
		for _, d := range node.Decisions() {
			if d.Partitioning != v1alpha1.PartitioningMIG || shared(d.Sharing) {
				continue
			}
			product := productOf(node, d.UUID)
			for _, profile := range node.Status.Profiles {
				if profile.Product == product && !slices.Contains(found[profile.Name], d.Pool) {
					found[profile.Name] = append(found[profile.Name], d.Pool)
				}
			}
		}
	}
	return found
}

func productOf(node *v1alpha1.GPUNode, uuid string) string {
	for _, gpu := range node.Status.GPUs {
		if gpu.UUID == uuid {
			return gpu.Product
		}
	}
	return ""
}

// given says in which ways a pool gives out devices of its own class, now or while one of its schedules lasts.
type given struct {
	// exclusive whole GPUs, shared whole GPUs, shared MIG instances.
	exclusive, shared, instances bool
}

func givenBy(pool *v1alpha1.GPUPool) given {
	var m given
	for _, variant := range timetable.Of(pool, 0).Variants() {
		divided := assign.Partitioning(variant) == v1alpha1.PartitioningMIG
		switch mode := variant.SharingMode(); {
		case shared(mode) && divided:
			m.instances = true
		case shared(mode):
			m.shared = true
		case !divided:
			m.exclusive = true
		}
	}
	return m
}

func shared(mode v1alpha1.SharingMode) bool { return slices.Contains(sharedModes(), mode) }

// sharedModes are the modes in which a device is given out in amounts.
func sharedModes() []v1alpha1.SharingMode {
	return []v1alpha1.SharingMode{v1alpha1.SharingSoftware, v1alpha1.SharingTimeSlicing, v1alpha1.SharingMPS}
}

// poolNeed selects a pool's shared devices, or where it has none its whole GPUs, but never both: on an unshared device an
// amount means "at least", so a class that selected both would let an amount take a whole GPU. While the GPUs of a pool go
// from one shared mode to another, those that wait are given out in the old one.
func poolNeed(pool *v1alpha1.GPUPool, m given) Need {
	terms := []string{equals(v1alpha1.AttributePool, pool.Name)}
	if m.shared || m.instances {
		terms = append(terms, oneOf(v1alpha1.AttributeSharing, sharedModes()))
	} else {
		terms = append(terms, equals(v1alpha1.AttributeSharing, string(v1alpha1.SharingExclusive)), equals(v1alpha1.AttributeProfile, ""))
	}
	return Need{Name: ForPool(pool.Name), Selector: selector(terms...)}
}

func wholeNeed() Need {
	return Need{
		Name: WholeGPUs,
		Selector: selector(
			equals(v1alpha1.AttributeSharing, string(v1alpha1.SharingExclusive)),
			equals(v1alpha1.AttributeProfile, ""),
		),
		ExtendedResource: wholeGPUResource,
	}
}

func profileNeed(profile string) Need {
	return Need{
		Name:             ForProfile(profile),
		Selector:         selector(equals(v1alpha1.AttributeProfile, profile)),
		ExtendedResource: extendedDomain + migPrefix + nameOf(profile),
	}
}

// selector asks for the driver, for what the class means, and for devices that are not draining: a claim that tolerates
// every taint would else settle on a GPU that is to be freed. Every attribute is read as one that may be absent, since
// a selector that fails on one device fails for every pod of the class.
func selector(terms ...string) string {
	all := append([]string{fmt.Sprintf("device.driver == %q", v1alpha1.DriverName)}, terms...)
	return strings.Join(append(all, reads(v1alpha1.AttributeDraining, "false")+" == false"), " && ")
}

func oneOf(attribute string, values []v1alpha1.SharingMode) string {
	quoted := make([]string, len(values))
	for i, value := range values {
		quoted[i] = strconv.Quote(string(value))
	}
	return reads(attribute, `""`) + " in [" + strings.Join(quoted, ", ") + "]"
}

func equals(attribute, value string) string {
	return reads(attribute, `""`) + " == " + strconv.Quote(value)
}

// reads is the value of an attribute, or another where a device lacks it.
func reads(attribute, otherwise string) string {
	return fmt.Sprintf("device.attributes[%q].?%s.orValue(%s)", v1alpha1.DriverName, attribute, otherwise)
}

// Render is the DeviceClass of a need.
func Render(need Need) *resourceapi.DeviceClass {
	class := &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{
			Name:   need.Name,
			Labels: map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue},
		},
		Spec: resourceapi.DeviceClassSpec{
			Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: need.Selector}}},
		},
	}
	if need.ExtendedResource != "" {
		class.Spec.ExtendedResourceName = ptr.To(need.ExtendedResource)
	}
	return class
}

// Managed says whether Sluice made a class and may change and remove it.
func Managed(class *resourceapi.DeviceClass) bool {
	return class.Labels[v1alpha1.ManagedByLabel] == v1alpha1.ManagedByValue
}
