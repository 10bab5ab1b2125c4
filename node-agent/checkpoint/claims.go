// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/gpu"
)

// State says how far a claim has come.
type State string

const (
	// Preparing: steps are being taken; after a crash whatever they left must be undone.
	Preparing State = "Preparing"
	// Prepared: kubelet has the answer, or may have it; asking again gives the same one.
	Prepared State = "Prepared"
	// Lost: prepared before the node was booted again. Share, instance and CDI spec are gone, but the claim still has
	// its GPU until it is prepared again or released.
	Lost State = "Lost"
)

// Claims is the record of claims on this node.
type Claims struct {
	Version int `json:"version"`
	// BootID is the boot in which the record was last written.
	BootID string `json:"bootID"`
	// Claims are by UID.
	Claims map[string]Claim `json:"claims"`
	// MIGModeFoundOff are the UUIDs of the GPUs whose MIG mode this agent turned on, or is about to, and owes to turn off.
	MIGModeFoundOff []string `json:"migModeFoundOff,omitempty"`
	// Idle are the MIG instances that are kept although no claim has them.
	Idle []Idle `json:"idle,omitempty"`
}

// Claim is one claim that has results of this driver.
type Claim struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	State     State  `json:"state"`
	// Library is the version of the library that the claim's containers start with, fixed when it was prepared; "" where
	// nothing is held inside the processes.
	Library string `json:"library,omitempty"`
	// WasLost is true while a claim that was Lost is being prepared again: failing makes it Lost, not forgotten.
	WasLost bool     `json:"wasLost,omitempty"`
	Results []Result `json:"results"`
	// Pods are those that the claim was reserved for when it was prepared.
	Pods []Pod `json:"pods,omitempty"`
}

// Pod is a pod of the claim's namespace.
type Pod struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
}

// Result is one allocation result of this driver.
type Result struct {
	// Index is the position among all results of the claim, those of other drivers too: it names the share.
	Index   int    `json:"index"`
	Request string `json:"request"`
	Pool    string `json:"pool"`
	Device  string `json:"device"`
	ShareID string `json:"shareID,omitempty"`
	// GPU is the UUID of the physical GPU: the identity, whatever its number is today.
	GPU string `json:"gpu"`
	// Shared is true where other claims may hold shares of the same device.
	Shared bool `json:"shared,omitempty"`
	// Memory and Compute are what was granted, bytes and percent.
	Memory  int64 `json:"memory"`
	Compute int64 `json:"compute"`
	// Admin is true for access granted for monitoring only: nothing is created or limited for it.
	Admin bool `json:"admin,omitempty"`
	// Enforced is true where the share's limits are to be held by the library.
	Enforced bool `json:"enforced,omitempty"`
	// Capped is true where it is never given more compute than was granted.
	Capped bool `json:"capped,omitempty"`
	// MPS is true where the share is held by MPS, and Driver the driver's version when it was granted.
	MPS    bool   `json:"mps,omitempty"`
	Driver string `json:"driver,omitempty"`
	// LimitsBackend is where NVIDIA's driver keeps the share's memory limit; "" where the library alone holds it. MustHold is
	// true where no container may start without the driver's limit.
	LimitsBackend v1alpha1.LimitsBackend `json:"limitsBackend,omitempty"`
	MustHold      bool                   `json:"mustHold,omitempty"`
	// Placement is the MIG instance's; nil for a whole GPU.
	Placement *Placement `json:"placement,omitempty"`
	// Standing is true where the MIG instance belongs to a static layout: it is there before the claim and after it.
	Standing bool `json:"standing,omitempty"`
	// DeviceCompute is the MIG instance's part of the whole GPU in percent, where claims share it.
	DeviceCompute int64 `json:"deviceCompute,omitempty"`
	// Instance is the MIG instance once it exists.
	Instance *Instance `json:"instance,omitempty"`
	// CDIDevices are what kubelet was told.
	CDIDevices []string `json:"cdiDevices,omitempty"`
}

// Placement says where on its GPU a MIG instance sits.
type Placement struct {
	Profile string `json:"profile"`
	Start   int    `json:"start"`
	Size    int    `json:"size"`
}

// Instance is a MIG instance that exists.
type Instance struct {
	GIID int `json:"giID"`
	// UUID is the MIG device's; "" between the two steps of its creation.
	UUID string `json:"uuid,omitempty"`
}

// GPU is the placement as the NVML door wants it.
func (p Placement) GPU() gpu.Placement { return gpu.Placement{Profile: p.Profile, Start: p.Start} }

// Overlaps is true where two instances of one GPU would share a memory slice.
func (p Placement) Overlaps(o Placement) bool {
	return p.Start < o.Start+o.Size && o.Start < p.Start+p.Size
}

// check finds what a record that was written whole never has: a missing list would read as an empty one, and a state that
// nobody knows would be nobody's to undo.
func (c Claims) check() error {
	if c.Claims == nil {
		return errors.New("it has no list of claims")
	}
	for uid, claim := range c.Claims {
		if claim.UID != uid {
			return fmt.Errorf("under claim %s it has claim %q", uid, claim.UID)
		}
		switch claim.State {
		case Preparing, Prepared, Lost:
		default:
			return fmt.Errorf("claim %s has state %q", uid, claim.State)
		}
	}
	return nil
}

// Sorted are the claims ordered by UID.
func (c Claims) Sorted() []Claim {
	claims := make([]Claim, 0, len(c.Claims))
	for _, claim := range c.Claims {
		claims = append(claims, claim)
	}
	slices.SortFunc(claims, func(a, b Claim) int { return cmp.Compare(a.UID, b.UID) })
	return claims
}

// OnGPU counts the claims that hold something of each GPU, by UUID.
func (c Claims) OnGPU() map[string]int {
	count := map[string]int{}
	for _, claim := range c.Claims {
		for _, uuid := range claim.GPUs() {
			count[uuid]++
		}
	}
	return count
}

// GPUs are the UUIDs of the GPUs that the claim holds something of, each once.
func (c Claim) GPUs() []string {
	var uuids []string
	for _, r := range c.Results {
		if !slices.Contains(uuids, r.GPU) {
			uuids = append(uuids, r.GPU)
		}
	}
	return uuids
}

// HeldOn are the placements of a GPU at which claims have MIG instances.
func (c Claims) HeldOn(uuid string) []gpu.Placement {
	var held []gpu.Placement
	for _, claim := range c.Claims {
		for _, r := range claim.Results {
			if r.GPU == uuid && r.Placement != nil && !r.Admin && !slices.Contains(held, r.Placement.GPU()) {
				held = append(held, r.Placement.GPU())
			}
		}
	}
	return held
}

// Users name those who have the claim: its pods where they are known, else the claim.
func (c Claim) Users() []string {
	names := make([]string, 0, max(1, len(c.Pods)))
	for _, pod := range c.Pods {
		names = append(names, c.Namespace+"/"+pod.Name)
	}
	if len(names) == 0 {
		names = append(names, fmt.Sprintf("claim %s/%s", c.Namespace, c.Name))
	}
	return names
}
