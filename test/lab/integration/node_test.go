// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/test/lab/kubelet"
	"github.com/sluice-gpu/sluice/test/lab/node"
	"github.com/sluice-gpu/sluice/test/lab/process"
)

// toyNode is a lab with a node whose agent is the test's driver.
type toyNode struct {
	running

	paths node.Paths
}

func toyLab(t *testing.T) toyNode {
	t.Helper()
	r := up(t)
	if _, err := r.client.ResourceV1().DeviceClasses().Create(t.Context(), toyClass(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	template := &resourceapi.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: "toy"}}
	template.Spec.Spec.Devices.Requests = []resourceapi.DeviceRequest{{
		Name: "toy", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: driverName},
	}}
	if _, err := r.client.ResourceV1().ResourceClaimTemplates("default").Create(t.Context(), template, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	output := mustLab(t, "node", "up", "--dir", string(r.dir), "--name", "n1", "--wait-driver", driverName, "-o", "json",
		"--agent-env", driverVariable+"="+driverTemplate, "--", self)
	var state node.State
	if err := json.Unmarshal([]byte(output), &state); err != nil {
		t.Fatal(err)
	}
	n := toyNode{running: r, paths: state.Paths}
	n.awaitSlice(t)
	return n
}

// awaitSlice waits until the driver has published its devices.
func (n toyNode) awaitSlice(t *testing.T) {
	t.Helper()
	eventually(t, "the driver's slice", func() error {
		slices, err := n.client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
		if err == nil && len(slices.Items) != 1 {
			err = fmt.Errorf("there are %d slices", len(slices.Items))
		}
		return err
	})
}

// node does something with the node.
func (n toyNode) node(t *testing.T, verb string, args ...string) {
	t.Helper()
	mustLab(t, append([]string{"node", verb, "--dir", string(n.dir), "--name", "n1"}, args...)...)
}

// create creates a pod with one container; edit makes it what the test needs.
func (n toyNode) create(t *testing.T, name string, edit func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "none"}}
	edit(pod)
	var created *corev1.Pod
	eventually(t, "creating "+name, func() (err error) { // the service account may be on its way
		created, err = n.client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
		return err
	})
	return created
}

func claimed(pod *corev1.Pod) {
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: ptr.To("toy")}}
	pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
}

func extended(pod *corev1.Pod) {
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"example.com/toy": resource.MustParse("1")}
}

func (n toyNode) awaitPhase(t *testing.T, name string, want corev1.PodPhase) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	eventually(t, fmt.Sprintf("%s becoming %s", name, want), func() (err error) {
		pod, err = n.client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
		if err == nil && pod.Status.Phase != want {
			err = fmt.Errorf("its status is %+v", pod.Status)
		}
		return err
	})
	return pod
}

func (n toyNode) delete(t *testing.T, name string, options metav1.DeleteOptions) {
	t.Helper()
	if err := n.client.CoreV1().Pods("default").Delete(t.Context(), name, options); err != nil {
		t.Fatal(err)
	}
}

func (n toyNode) awaitGone(t *testing.T, name string) {
	t.Helper()
	eventually(t, name+" going", func() error {
		_, err := n.client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it is still there"))
	})
}

// awaitPrepared waits until the driver has so many claims prepared.
func (n toyNode) awaitPrepared(t *testing.T, want int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d prepared claims", want), func() error {
		files, err := filepath.Glob(filepath.Join(n.paths.Dir, "prepared", "*"))
		if err == nil && len(files) != want {
			err = fmt.Errorf("there are %d", len(files))
		}
		return err
	})
}

func (n toyNode) record(t *testing.T, uid types.UID) kubelet.Record {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(n.paths.Dir, "pods", string(uid)+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var record kubelet.Record
	if err := json.Unmarshal(content, &record); err != nil {
		t.Fatal(err)
	}
	return record
}

func TestPodsGetDevices(t *testing.T) {
	n := toyLab(t)
	for _, tc := range []struct {
		name string
		edit func(*corev1.Pod)
	}{
		{name: "by-claim", edit: claimed},
		{name: "by-extended-resource", edit: extended},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n.create(t, tc.name, tc.edit)
			pod := n.awaitPhase(t, tc.name, corev1.PodRunning)
			env := n.record(t, pod.UID).Containers[0].Env
			if len(env) != 1 || !strings.HasPrefix(env[0], "TOY=dev-") {
				t.Errorf("the container's environment is %q, want the driver's variable", env)
			}
			n.delete(t, tc.name, metav1.DeleteOptions{})
			n.awaitGone(t, tc.name)
			n.awaitPrepared(t, 0)
		})
	}
	t.Run("a pod that ends gives its claim back", func(t *testing.T) {
		n.create(t, "ends", func(pod *corev1.Pod) {
			claimed(pod)
			pod.Spec.RestartPolicy = corev1.RestartPolicyNever
			pod.Annotations = map[string]string{kubelet.ExitAfter: "100ms", kubelet.ExitCode: "3"}
		})
		pod := n.awaitPhase(t, "ends", corev1.PodFailed)
		if got := pod.Status.ContainerStatuses[0].State.Terminated.ExitCode; got != 3 {
			t.Errorf("its exit code is %d, want 3", got)
		}
		n.awaitPrepared(t, 0)
	})
}

func TestAgentAndKubeletComeAndGo(t *testing.T) {
	n := toyLab(t)
	n.node(t, "agent-kill")
	pod := n.create(t, "waits", claimed)
	eventually(t, "an event that says why", func() error {
		events, err := n.client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{
			FieldSelector: "reason=FailedPrepareDynamicResources,involvedObject.uid=" + string(pod.UID),
		})
		if err == nil && len(events.Items) == 0 {
			err = errors.New("there is none")
		}
		return err
	})
	n.node(t, "agent-start", "--wait-driver", driverName)
	n.awaitPhase(t, "waits", corev1.PodRunning)
	n.awaitPrepared(t, 1)

	// Force-deleted while nobody looks: the checkpoint alone knows of the claim.
	n.node(t, "kubelet-kill")
	n.delete(t, "waits", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
	n.awaitGone(t, "waits")
	n.node(t, "kubelet-start", "--wait-driver", driverName)
	n.awaitPrepared(t, 0)

	n.create(t, "after", claimed)
	n.awaitPhase(t, "after", corev1.PodRunning)
	mustLab(t, "node", "down", "--dir", string(n.dir), "--name", "n1")
	if _, err := n.client.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Node after down: %v, want not found", err)
	}
	if _, err := os.Stat(n.paths.Kubelet); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket directory is left (%v)", err)
	}
}

func TestKilledSupervisorLeavesNothingBehindDown(t *testing.T) {
	n := toyLab(t)
	status, err := node.Describe(t.Context(), n.dir, "n1")
	if err != nil {
		t.Fatal(err)
	}
	var children []process.Identity
	for _, child := range status.Processes {
		id, err := process.Identify(child.PID)
		if err != nil {
			t.Fatal(err)
		}
		children = append(children, id)
	}
	if err := status.Supervisor.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	mustLab(t, "down", "--dir", string(n.dir))
	for _, child := range children {
		if child.Alive() {
			t.Errorf("process %d of the node runs after down", child.PID)
		}
	}
}
