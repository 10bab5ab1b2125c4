// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"runtime"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/sluice-gpu/sluice/test/lab/kubelet"
)

// object is the Node as the API server gets it first.
func object(spec Spec, kubeletVersion, bootID string, now time.Time) *corev1.Node {
	labels := map[string]string{
		corev1.LabelHostname: spec.Name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: runtime.GOARCH,
	}
	maps.Copy(labels, spec.Labels)
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("128"), corev1.ResourceMemory: resource.MustParse("1Ti"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"), corev1.ResourcePods: resource.MustParse("250"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: spec.Name, Labels: labels},
		Status: corev1.NodeStatus{
			Capacity: capacity, Allocatable: capacity.DeepCopy(),
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: address(spec.Name)}, {Type: corev1.NodeHostName, Address: spec.Name},
			},
			Conditions: kubelet.ReadyConditions(nil, now),
			NodeInfo: corev1.NodeSystemInfo{
				MachineID: spec.Name, SystemUUID: spec.Name, BootID: bootID,
				KubeletVersion: kubeletVersion, ContainerRuntimeVersion: "none://simulated", OSImage: "simulated",
				KernelVersion: "simulated", OperatingSystem: "linux", Architecture: runtime.GOARCH,
			},
		},
	}
}

// address gives a node an address of the range set aside for tests; nothing answers there.
func address(name string) string {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(name))
	sum := hash.Sum32()
	return fmt.Sprintf("198.18.%d.%d", sum>>8&0xff, 1+sum&0x7f)
}

// createObject creates the Node, ready from the first moment.
func createObject(ctx context.Context, client kubernetes.Interface, spec Spec, now time.Time) error {
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("asking the API server for its version: %w", err)
	}
	wanted := object(spec, version.GitVersion, fmt.Sprintf("%s-%d", spec.Name, now.UnixNano()), now)
	created, err := client.CoreV1().Nodes().Create(ctx, wanted, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("the cluster already has a node %s: %w", spec.Name, err)
	}
	if err != nil {
		return fmt.Errorf("creating the node: %w", err)
	}
	// Admission taints every new node as not ready. This one is, and nobody need wait until a controller sees it.
	if _, err := client.CoreV1().Nodes().Patch(ctx, created.Name, types.MergePatchType, []byte(`{"spec":{"taints":null}}`), metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("taking the first taint off the node: %w", err)
	}
	return nil
}

// deleteObject deletes the Node; what it owns, slices and lease, follows.
func deleteObject(ctx context.Context, client kubernetes.Interface, name string) error {
	err := client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting the node: %w", err)
	}
	return nil
}
