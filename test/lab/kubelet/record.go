// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Record is what a started pod got, as a container runtime would have applied it.
type Record struct {
	Namespace  string            `json:"namespace"`
	Name       string            `json:"name"`
	UID        types.UID         `json:"uid"`
	Claims     []preparedClaim   `json:"claims,omitempty"`
	Containers []ContainerRecord `json:"containers"`
}

// ContainerRecord is what one container got.
type ContainerRecord struct {
	Name string `json:"name"`
	// Init says that it is an init container.
	Init bool `json:"init,omitempty"`
	// CDIDevices are the qualified names that its runtime would have been given.
	CDIDevices []string `json:"cdiDevices,omitempty"`

	// What the CDI specifications make of them.
	cdiEdits
}

// makeRecord resolves what each container of a pod gets; an error is what would keep a runtime from starting it.
func makeRecord(pod *corev1.Pod, claims []fetchedClaim, prepared map[types.UID]preparedClaim, cdiDir string) (Record, error) {
	record := Record{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
	for _, claim := range claims {
		record.Claims = append(record.Claims, prepared[claim.uid])
	}
	for _, c := range pod.Spec.InitContainers {
		devices := containerDevices(pod, c, claims, prepared)
		record.Containers = append(record.Containers, ContainerRecord{Name: c.Name, Init: true, CDIDevices: devices})
	}
	for _, c := range pod.Spec.Containers {
		devices := containerDevices(pod, c, claims, prepared)
		record.Containers = append(record.Containers, ContainerRecord{Name: c.Name, CDIDevices: devices})
	}
	if len(claims) == 0 {
		return record, nil
	}
	specs, unreadable := loadCDI(cdiDir)
	for i := range record.Containers {
		c := &record.Containers[i]
		edits, err := resolveCDI(specs, c.CDIDevices)
		if err == nil {
			err = missingPaths(edits, exists)
		}
		if err != nil {
			return Record{}, fmt.Errorf("container %q: %w", c.Name, errors.Join(err, unreadable))
		}
		c.cdiEdits = edits
	}
	return record, nil
}
