// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestLint(t *testing.T) {
	if out, err := output(programs.helm, "lint", "--strict", path("charts", "sluice")); err != nil {
		t.Fatal(err, out)
	}
}

func TestNothingIsOfAnotherNamespace(t *testing.T) {
	for at, object := range chart(t, "gpu-operator") {
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "sluice-system") {
			t.Errorf("%s names sluice-system", at)
		}
		if ns := object.GetNamespace(); ns != "" && ns != "gpu-operator" {
			t.Errorf("%s is in %s", at, ns)
		}
	}
}

func TestRenderingTwiceGivesTheSame(t *testing.T) {
	first, err := output(programs.helm, "template", "sluice", path("charts", "sluice"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := output(programs.helm, "template", "sluice", path("charts", "sluice"))
	if err != nil {
		t.Fatal(err)
	}
	if first != second {
		t.Error("two renderings differ")
	}
	if strings.Contains(first, "caBundle") {
		t.Error("a template has a caBundle: an upgrade would take the manager's away")
	}
}

// as decodes an object strictly, so that a misspelt field is found.
func as[T any](t *testing.T, all objects, kind, namespace, name string) T {
	t.Helper()
	var typed T
	object := all[key(kind, namespace, name)]
	if object == nil {
		t.Fatalf("there is no %s %s", kind, name)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &typed, true); err != nil {
		t.Fatalf("%s %s: %v", kind, name, err)
	}
	return typed
}

func agentOf(t *testing.T, all objects) (appsv1.DaemonSet, corev1.Container) {
	t.Helper()
	set := as[appsv1.DaemonSet](t, all, "DaemonSet", namespace, "sluice-node-agent")
	return set, set.Spec.Template.Spec.Containers[0]
}

func TestAgentValues(t *testing.T) {
	cases := map[string]struct {
		values   []string
		args     []string
		hostPath map[string]string
	}{
		"the node's own driver": {
			args:     []string{"--driver-root=/", "--host-root=/host", "--host-bin-dir=/var/lib/sluice/bin"},
			hostPath: map[string]string{"/host": "/", "/run/sluice": "/run/sluice", "/dev": "/dev"},
		},
		"the GPU operator's driver": {
			values: []string{`agent.driverRoot="/run/nvidia/driver"`, `agent.devRoot="/"`},
			args:   []string{"--driver-root=/run/nvidia/driver", "--dev-root=/"},
		},
		"another kubelet": {
			values:   []string{`agent.kubeletDir="/var/lib/k0s/kubelet/"`},
			args:     []string{"--plugin-dir=/var/lib/k0s/kubelet/plugins", "--registrar-dir=/var/lib/k0s/kubelet/plugins_registry"},
			hostPath: map[string]string{"/var/lib/k0s/kubelet/plugins": "/var/lib/k0s/kubelet/plugins"},
		},
		"programs on a file system of their own": {
			values:   []string{`agent.hostBinDir="/opt/sluice/bin"`},
			args:     []string{"--host-bin-dir=/opt/sluice/bin"},
			hostPath: map[string]string{"/opt/sluice/bin": "/opt/sluice/bin"},
		},
		"another state directory takes the programs along": {
			values:   []string{`agent.stateDir="/srv/sluice"`},
			args:     []string{"--state-dir=/srv/sluice", "--host-bin-dir=/srv/sluice/bin"},
			hostPath: map[string]string{"/srv/sluice": "/srv/sluice"},
		},
		"what a site adds": {
			values: []string{
				`agent.extraArgs=["--resync=10s"]`, `agent.extraVolumes=[{"name":"x","hostPath":{"path":"/x"}}]`,
				`agent.extraVolumeMounts=[{"name":"x","mountPath":"/y"}]`,
			},
			args:     []string{"--resync=10s"},
			hostPath: map[string]string{"/y": "/x"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			set, container := agentOf(t, chart(t, namespace, tc.values...))
			for _, want := range tc.args {
				if !slices.Contains(container.Args, want) {
					t.Errorf("no argument %s in %v", want, container.Args)
				}
			}
			got := map[string]string{}
			for _, mount := range container.VolumeMounts {
				for _, volume := range set.Spec.Template.Spec.Volumes {
					if volume.Name == mount.Name && volume.HostPath != nil {
						got[mount.MountPath] = volume.HostPath.Path
					}
				}
			}
			for at, want := range tc.hostPath {
				if got[at] != want {
					t.Errorf("%s is the node's %q, want %s", at, got[at], want)
				}
			}
		})
	}
}

func TestAgentOverlapsItsSuccessor(t *testing.T) {
	set, container := agentOf(t, chart(t, namespace))
	rolling := set.Spec.UpdateStrategy.RollingUpdate
	if rolling == nil || rolling.MaxSurge.IntValue() != 1 || rolling.MaxUnavailable.IntValue() != 0 {
		t.Errorf("it is updated by %+v, want a surge of one", rolling)
	}
	for _, port := range container.Ports {
		if port.HostPort != 0 {
			t.Errorf("port %s is the node's, of which there is one", port.Name)
		}
	}
	if set.Spec.Template.Spec.HostNetwork {
		t.Error("its ports are the node's, of which there is one")
	}
	if _, limited := container.Resources.Limits[corev1.ResourceCPU]; limited {
		t.Error("its real-time thread has a CPU limit")
	}
}

func TestPlacement(t *testing.T) {
	all := chart(t, namespace,
		`agent.tolerations=[{"operator":"Exists"}]`, `agent.affinity={}`, `agent.nodeSelector={"gpu":"yes"}`,
		`manager.replicas=1`, `manager.nodeSelector={"role":"infra"}`, `manager.priorityClassName=""`, `image.pullSecrets=["key"]`)
	set, _ := agentOf(t, all)
	pod := set.Spec.Template.Spec
	if len(pod.Tolerations) != 1 || pod.Tolerations[0].Operator != corev1.TolerationOpExists || pod.Tolerations[0].Key != "" {
		t.Errorf("the agent tolerates %+v", pod.Tolerations)
	}
	if pod.NodeSelector["gpu"] != "yes" {
		t.Errorf("the agent's node selector is %v", pod.NodeSelector)
	}
	manager := as[appsv1.Deployment](t, all, "Deployment", namespace, "sluice-manager").Spec.Template.Spec
	if manager.NodeSelector["role"] != "infra" || manager.PriorityClassName != "" || manager.ImagePullSecrets[0].Name != "key" {
		t.Errorf("the manager's pod is %+v", manager)
	}
	if all[key("PodDisruptionBudget", namespace, "sluice-manager")] != nil {
		t.Error("one replica has a budget that nothing could be evicted within")
	}
}

func TestToggles(t *testing.T) {
	cases := map[string]struct {
		value string
		gone  []string
		made  []string
	}{
		"no network policies": {
			value: `networkPolicy.enabled=false`,
			gone:  []string{key("NetworkPolicy", namespace, "sluice-manager"), key("NetworkPolicy", namespace, "sluice-node-agent")},
		},
		"nothing is cleaned up": {
			value: `uninstall.enabled=false`,
			gone:  []string{key("Job", namespace, "sluice-uninstall"), key("ClusterRole", "", "sluice-uninstall")},
		},
		"no roles for users": {value: `userRoles=false`, gone: []string{key("ClusterRole", "", "sluice-view")}},
		"the API comes from elsewhere": {
			value: `crds.install=false`, gone: []string{key("CustomResourceDefinition", "", "gpupools.sluice.dev")},
		},
		"monitored": {
			value: `metrics.serviceMonitor.enabled=true`,
			made: []string{
				key("ServiceMonitor", namespace, "sluice-manager"), key("ServiceMonitor", namespace, "sluice-node-agent"),
				key("Service", namespace, "sluice-manager-metrics"), key("Service", namespace, "sluice-node-agent-metrics"),
			},
		},
	}
	before := chart(t, namespace)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			after := chart(t, namespace, tc.value)
			for _, at := range tc.gone {
				if before[at] == nil || after[at] != nil {
					t.Errorf("%s: there by default: %v, and then: %v", at, before[at] != nil, after[at] != nil)
				}
			}
			for _, at := range tc.made {
				if before[at] != nil || after[at] == nil {
					t.Errorf("%s: there by default: %v, and then: %v", at, before[at] != nil, after[at] != nil)
				}
			}
		})
	}
}

func TestTheAPIStaysUnlessAsked(t *testing.T) {
	at, policy := key("CustomResourceDefinition", "", "gpupools.sluice.dev"), "helm.sh/resource-policy"
	if got := chart(t, namespace)[at].GetAnnotations()[policy]; got != "keep" {
		t.Errorf("by default the policy is %q, want keep", got)
	}
	if got := chart(t, namespace, `crds.keep=false`)[at].GetAnnotations()[policy]; got != "" {
		t.Errorf("without crds.keep the policy is %q, want none", got)
	}
}

func TestBadValuesAreRefused(t *testing.T) {
	cases := map[string]struct{ value, want string }{
		"an unknown value":               {`replicas=2`, "additional properties 'replicas' not allowed"},
		"a misspelt one":                 {`agent.driverroot="/"`, "additional properties 'driverroot' not allowed"},
		"a relative directory":           {`agent.driverRoot="run/nvidia"`, "/agent/driverRoot"},
		"no replica":                     {`manager.replicas=0`, "/manager/replicas"},
		"a number for a text":            {`image.tag=1`, "/image/tag"},
		"no size":                        {`agent.shareSize="much"`, "/agent/shareSize"},
		"an unknown pull policy":         {`image.pullPolicy="Sometimes"`, "/image/pullPolicy"},
		"no duration":                    {`manager.drainSettle="soon"`, "/manager/drainSettle"},
		"an environment without names":   {`agent.extraEnv=[{"value":"x"}]`, "/agent/extraEnv"},
		"a toleration of another effect": {`agent.tolerations=[{"effect":"Never"}]`, "/agent/tolerations"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := render(namespace, tc.value)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
}

// TestOnlyUninstallingRunsHooks holds installing and upgrading to plain objects.
func TestOnlyUninstallingRunsHooks(t *testing.T) {
	for at, object := range chart(t, namespace) {
		if hook := object.GetAnnotations()["helm.sh/hook"]; hook != "" && hook != "pre-delete" {
			t.Errorf("%s runs at %s", at, hook)
		}
	}
	job := as[batchv1.Job](t, chart(t, namespace), "Job", namespace, "sluice-uninstall")
	if got := job.Spec.Template.Spec.Containers[0].Args[0]; got != "uninstall" {
		t.Errorf("the job runs the manager as %q", got)
	}
}
