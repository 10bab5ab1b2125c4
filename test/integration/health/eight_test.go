// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/builders"
)

// taints are those of health of the node's whole GPUs, by device.
func (w ward) taints(ctx context.Context) (map[string]string, error) {
	var list resourceapi.ResourceSliceList
	if err := cluster.Client.List(ctx, &list); err != nil {
		return nil, err
	}
	taints := map[string]string{}
	for _, s := range list.Items {
		if s.Spec.Pool.Name != w.name || s.Spec.Driver != v1alpha1.DriverName {
			continue
		}
		for _, d := range s.Spec.Devices {
			if taint := healthTaint(d); taint != "" {
				taints[d.Name] = taint
			}
		}
	}
	return taints, nil
}

// minorOf is the number of the GPU that a pod has.
func (w ward) minorOf(p *corev1.Pod) int {
	w.Helper()
	if len(p.Status.ResourceClaimStatuses) != 1 {
		w.Fatalf("pod %s has claims %v", p.Name, p.Status.ResourceClaimStatuses)
	}
	var claim resourceapi.ResourceClaim
	key := client.ObjectKey{Namespace: p.Namespace, Name: *p.Status.ResourceClaimStatuses[0].ResourceClaimName}
	if err := cluster.Client.Get(w.Context(), key, &claim); err != nil {
		w.Fatal(err)
	}
	var minor int
	if _, err := fmt.Sscanf(claim.Status.Allocation.Devices.Results[0].Device, "gpu-%d", &minor); err != nil {
		w.Fatal(err)
	}
	return minor
}

func TestOneLostGPUOfEightTakesNothingElseWithIt(t *testing.T) {
	w := newWard(t, "eighth", 8, false, builders.MakePool("eighth").MaxTenants(1))
	var pods []*corev1.Pod
	for i := range 7 {
		pods = append(pods, w.pod("tenant-"+strconv.Itoa(i), "10Gi"))
	}
	for _, p := range pods {
		w.running(p)
	}
	victim, others := pods[3], slices.Concat(pods[:3], pods[4:])
	gpu := w.minorOf(victim)
	w.fakeGPU("fault", "--lost", "--gpu", strconv.Itoa(gpu))
	w.is(gpu, v1alpha1.HealthLost, v1alpha1.HealthReasonOffBus)
	w.wait("the pod on the lost GPU is deleted", isGone(victim))
	w.running(w.pod("next", "10Gi"))
	for _, p := range others {
		if err := cluster.Client.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil || p.DeletionTimestamp != nil ||
			p.Status.Phase != corev1.PodRunning {
			t.Errorf("pod %s on another GPU is %s (deleted at %v, error %v)", p.Name, p.Status.Phase, p.DeletionTimestamp, err)
		}
	}
	taints, err := w.taints(t.Context())
	if err != nil || len(taints) != 1 || taints["gpu-"+strconv.Itoa(gpu)] != "OffBus:NoExecute" {
		t.Errorf("taints are %v (error %v), want one, of gpu-%d", taints, err, gpu)
	}
	w.fakeGPU("fault", "--found", "--gpu", strconv.Itoa(gpu))
	w.is(gpu, v1alpha1.HealthHealthy, v1alpha1.HealthReasonHealthy)
	w.tainted("")
	w.running(w.pod("last", "10Gi"))
}

// Every GPU of a node has an illness of its own; each is said of that GPU alone, and ends by itself.
func TestIllnessesAreToldApartAndEnd(t *testing.T) {
	w := newWard(t, "ills", 8, false, builders.MakePool("ills"))
	w.is(7, v1alpha1.HealthHealthy, v1alpha1.HealthReasonHealthy)
	// Memory errors count from the first reading on, which has been where a brake is told.
	w.fakeGPU("health", "--gpu", "7", "--brake", "thermal")
	w.is(7, v1alpha1.HealthHealthy, v1alpha1.HealthReasonThermalBrake)
	w.fakeGPU("health", "--gpu", "7", "--brake", "none")
	cases := []struct {
		ill, well []string
		state     v1alpha1.HealthState
		reason    string
	}{
		{ill: []string{"health", "--ecc", "3"}, state: v1alpha1.HealthSuspect, reason: v1alpha1.HealthReasonECC},
		{ill: []string{"health", "--remap", "failed"}, well: []string{"health", "--remap", "none"}, state: v1alpha1.HealthSuspect, reason: v1alpha1.HealthReasonRowRemapFailed},
		{ill: []string{"health", "--remap", "pending"}, well: []string{"health", "--remap", "none"}, state: v1alpha1.HealthSuspect, reason: v1alpha1.HealthReasonRowRemapPending},
		{ill: []string{"health", "--recovery", "reboot"}, well: []string{"health", "--recovery", "none"}, state: v1alpha1.HealthSuspect, reason: v1alpha1.HealthReasonRecoveryNeeded},
		{ill: []string{"xid", "--xid", "62"}, state: v1alpha1.HealthSuspect, reason: v1alpha1.HealthReasonXID},
		{ill: []string{"xid", "--xid", "999"}, state: v1alpha1.HealthSuspect, reason: v1alpha1.HealthReasonXID},
		{ill: []string{"health", "--brake", "power"}, well: []string{"health", "--brake", "none"}, state: v1alpha1.HealthHealthy, reason: v1alpha1.HealthReasonPowerBrake},
		{ill: []string{"xid", "--xid", "13"}, state: v1alpha1.HealthHealthy, reason: v1alpha1.HealthReasonHealthy},
	}
	want := map[string]string{}
	for i, tc := range cases {
		w.fakeGPU(slices.Concat(tc.ill[:1], []string{"--gpu", strconv.Itoa(i)}, tc.ill[1:])...)
		if tc.state == v1alpha1.HealthSuspect {
			want["gpu-"+strconv.Itoa(i)] = tc.reason + ":NoSchedule"
		}
	}
	for i, tc := range cases {
		w.is(i, tc.state, tc.reason)
	}
	w.wait(fmt.Sprintf("the taints are %v", want), func(ctx context.Context) (bool, error) {
		got, err := w.taints(ctx)
		return fmt.Sprint(got) == fmt.Sprint(want), err
	})
	for i, tc := range cases {
		if tc.well != nil {
			w.fakeGPU(slices.Concat(tc.well[:1], []string{"--gpu", strconv.Itoa(i)}, tc.well[1:])...)
		}
	}
	for i := range cases {
		w.is(i, v1alpha1.HealthHealthy, v1alpha1.HealthReasonHealthy)
	}
	w.tainted("")
	w.unhealthy(metav1.ConditionFalse)
}

// longHang is how long NVML hangs in a test: several times what a call may take.
const longHang = 75 * time.Second

func TestNVMLHangsAltogetherForLongAndOverARestart(t *testing.T) {
	w := newWard(t, "stuck", 2, false, builders.MakePool("stuck"))
	first, second := w.pod("first", "10Gi"), w.pod("second", "10Gi")
	w.running(first)
	w.running(second)
	w.fakeGPU("fault", "--hang")
	w.is(0, v1alpha1.HealthSuspect, v1alpha1.HealthReasonNVMLHangs)
	w.is(1, v1alpha1.HealthSuspect, v1alpha1.HealthReasonNVMLHangs)
	w.tainted("NVMLHangs:NoSchedule")
	if err := cluster.KillAgent(t.Context(), w.name); err != nil {
		t.Fatal(err)
	}
	if err := cluster.StartAgent(t.Context(), w.name); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Client.Delete(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	w.wait("a pod ends while NVML hangs", isGone(second))
	third := w.pod("third", "10Gi")
	w.wait("NVML has hung for long, and the devices stay tainted", func(ctx context.Context) (bool, error) {
		var n v1alpha1.GPUNode
		err := cluster.Client.Get(ctx, client.ObjectKey{Name: w.name}, &n)
		c := meta.FindStatusCondition(n.Status.Conditions, v1alpha1.NodeDriverAvailable)
		if err == nil && (c == nil || c.Status != metav1.ConditionFalse) {
			return false, fmt.Errorf("the condition is %v although NVML hangs", c)
		}
		return err == nil && time.Since(c.LastTransitionTime.Time) > longHang, err
	})
	w.tainted("NVMLHangs:NoSchedule")
	w.running(first)
	w.fakeGPU("fault", "--clear")
	w.is(0, v1alpha1.HealthHealthy, v1alpha1.HealthReasonHealthy)
	w.is(1, v1alpha1.HealthHealthy, v1alpha1.HealthReasonHealthy)
	w.tainted("")
	w.running(third)
	w.running(first)
}
