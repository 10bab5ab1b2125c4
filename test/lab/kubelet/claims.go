// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
)

// podClaim is a claim as a pod refers to it.
type podClaim struct {
	// ref is the name by which containers refer to it; the claim of extended resources has none.
	ref string
	// object is the ResourceClaim's name.
	object string
	// owned says that the claim was made for this very pod, which must be checked.
	owned bool
}

// podClaims lists a pod's claims. It is an error if one was not made yet.
func podClaims(pod *corev1.Pod) ([]podClaim, error) {
	var list []podClaim
	for i := range pod.Spec.ResourceClaims {
		claim := &pod.Spec.ResourceClaims[i]
		name, owned, err := resourceclaim.Name(pod, claim)
		if err != nil {
			return nil, fmt.Errorf("finding the claim %q: %w", claim.Name, err)
		}
		if name != nil {
			list = append(list, podClaim{ref: claim.Name, object: *name, owned: owned})
		}
	}
	if extended := pod.Status.ExtendedResourceClaimStatus; extended != nil && extended.ResourceClaimName != "" {
		list = append(list, podClaim{object: extended.ResourceClaimName, owned: true})
	}
	return list, nil
}

// fetchedClaim is a claim that is allocated and reserved for the pod.
type fetchedClaim struct {
	podClaim

	namespace string
	uid       types.UID
	drivers   []string
}

// fetchClaims reads a pod's claims and checks that the pod may use them.
func fetchClaims(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) ([]fetchedClaim, error) {
	wanted, err := podClaims(pod)
	if err != nil {
		return nil, err
	}
	fetched := make([]fetchedClaim, 0, len(wanted))
	for _, want := range wanted {
		claim, err := client.ResourceV1().ResourceClaims(pod.Namespace).Get(ctx, want.object, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("reading the claim: %w", err)
		}
		if err := usable(pod, claim, want.owned); err != nil {
			return nil, err
		}
		fetched = append(fetched, fetchedClaim{podClaim: want, namespace: claim.Namespace, uid: claim.UID, drivers: driversOf(claim)})
	}
	return fetched, nil
}

// usable says why a pod must not use a claim; nil means that it may.
func usable(pod *corev1.Pod, claim *resourceapi.ResourceClaim, owned bool) error {
	if owned {
		if err := resourceclaim.IsForPod(pod, claim, false); err != nil {
			return err
		}
	}
	if claim.Status.Allocation == nil {
		return fmt.Errorf("the claim %s is not allocated", claim.Name)
	}
	if !resourceclaim.IsReservedForPod(pod, claim, false) {
		return fmt.Errorf("the claim %s is not reserved for the pod", claim.Name)
	}
	return nil
}

// driversOf lists the drivers that a claim's allocation names.
func driversOf(claim *resourceapi.ResourceClaim) []string {
	var drivers []string
	for _, result := range claim.Status.Allocation.Devices.Results {
		if !slices.Contains(drivers, result.Driver) {
			drivers = append(drivers, result.Driver)
		}
	}
	return drivers
}

// containerDevices lists the CDI devices that a container gets: those of the requests it names, in its own claims or
// through its extended resources.
func containerDevices(pod *corev1.Pod, container corev1.Container, claims []fetchedClaim, prepared map[types.UID]preparedClaim) []string {
	var devices []string
	add := func(claim fetchedClaim, request string) {
		for _, device := range prepared[claim.uid].Devices {
			if !serves(device, request) {
				continue
			}
			for _, id := range device.CDI {
				if !slices.Contains(devices, id) {
					devices = append(devices, id)
				}
			}
		}
	}
	for _, claim := range claims {
		for _, use := range container.Resources.Claims {
			if claim.ref != "" && use.Name == claim.ref {
				add(claim, use.Request)
			}
		}
		if extended := pod.Status.ExtendedResourceClaimStatus; claim.ref == "" && extended != nil {
			for _, mapping := range extended.RequestMappings {
				if mapping.ContainerName == container.Name {
					add(claim, mapping.RequestName)
				}
			}
		}
	}
	return devices
}

// serves says whether a device belongs to a request. No request, on either side, means all; a driver may name the
// alternative that was taken, a container names the request alone.
func serves(device preparedDevice, request string) bool {
	return request == "" || len(device.Requests) == 0 || slices.ContainsFunc(device.Requests, func(name string) bool {
		return name == request || resourceclaim.BaseRequestRef(name) == request
	})
}
