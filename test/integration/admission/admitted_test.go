// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/builders"
)

func TestPodsBecomeClaims(t *testing.T) {
	unnamed := builders.MakePod("").Memory("1Gi").Obj()
	unnamed.GenerateName = "job-"
	for _, tc := range []struct {
		name string
		pod  *corev1.Pod
		want string
		uses map[string]string
	}{
		{
			name: "memory and compute of the default pool", pod: builders.MakePod("p").Memory("10Gi").Compute("30").Obj(),
			want: `{"version":1,"pool":"shared","form":"Shared","requests":[{"name":"main","count":1,"memoryMi":10240,"compute":30}]}`,
			uses: map[string]string{"main": "main"},
		},
		{
			name: "a pod whose name is generated", pod: unnamed,
			want: `{"version":1,"pool":"shared","form":"Shared","requests":[{"name":"main","count":1,"memoryMi":1024}]}`,
			uses: map[string]string{"main": "main"},
		},
		{
			name: "two whole GPUs of a named pool", pod: builders.MakePod("p").Pool("whole").Limit(v1alpha1.ResourceGPU, "2").Obj(),
			want: `{"version":1,"pool":"whole","form":"Exclusive","requests":[{"name":"main","count":2}]}`,
			uses: map[string]string{"main": "main"},
		},
		{
			name: "a pool without a GPU", pod: builders.MakePod("p").Pool("empty").Memory("500Gi").Obj(),
			want: `{"version":1,"pool":"empty","form":"Shared","requests":[{"name":"main","count":1,"memoryMi":512000}]}`,
			uses: map[string]string{"main": "main"},
		},
		{
			name: "the smallest MIG instance that holds the memory", pod: builders.MakePod("p").Pool("mig").Memory("9Gi").Obj(),
			want: `{"version":1,"pool":"mig","form":"MIG","requests":[{"name":"main","count":1,"memoryMi":9216,` +
				`"profiles":["1g.10gb","1g.20gb","3g.40gb","7g.80gb"]}]}`,
			uses: map[string]string{"main": "main"},
		},
		{
			name: "several containers, one of which asks for nothing",
			pod:  builders.MakePod("p").Memory("2Gi").Container("web").Container("b").Memory("1Gi").Obj(),
			want: `{"version":1,"pool":"shared","form":"Shared","requests":[{"name":"b","count":1,"memoryMi":1024},` +
				`{"name":"main","count":1,"memoryMi":2048}]}`,
			uses: map[string]string{"main": "main", "b": "b"},
		},
		{
			name: "an init container and a sidecar",
			pod:  initial(initial(builders.MakePod("p").Memory("2Gi").Obj(), "load", "1Gi", false), "cache", "3Gi", true),
			want: `{"version":1,"pool":"shared","form":"Shared","requests":[{"name":"cache","count":1,"memoryMi":3072},` +
				`{"name":"main","count":1,"memoryMi":2048}]}`,
			uses: map[string]string{"load": "main", "cache": "cache", "main": "main"},
		},
		{
			name: "init containers alone",
			pod:  initial(initial(builders.MakePod("p").Obj(), "one", "1Gi", false), "two", "2Gi", false),
			want: `{"version":1,"pool":"shared","form":"Shared","requests":[{"name":"one","count":1,"memoryMi":2048}]}`,
			uses: map[string]string{"one": "one", "two": "one"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScene(t)
			pod := tc.pod
			s.create(pod)
			if diff := cmp.Diff(tc.want, s.canonical(pod)); diff != "" {
				t.Errorf("canonical request (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.uses, requestsOf(pod)); diff != "" {
				t.Errorf("requests by container (-want +got):\n%s", diff)
			}
			if left := sluiceLimits(pod); len(left) > 0 {
				t.Errorf("limits that admission left: %v", left)
			}
			template, claim := s.template(pod), s.claim(pod)
			if !apiequality.Semantic.DeepEqual(template.Spec.Spec, claim.Spec) {
				t.Errorf("claim (-template +claim):\n%s", cmp.Diff(template.Spec.Spec, claim.Spec))
			}
		})
	}
}

// requestsOf are the requests that containers use, by container.
func requestsOf(pod *corev1.Pod) map[string]string {
	used := map[string]string{}
	for _, container := range append(pod.Spec.Containers, pod.Spec.InitContainers...) {
		for _, claim := range container.Resources.Claims {
			used[container.Name] = claim.Request
		}
	}
	return used
}

func sluiceLimits(pod *corev1.Pod) []string {
	var left []string
	for _, container := range append(pod.Spec.Containers, pod.Spec.InitContainers...) {
		for name := range container.Resources.Limits {
			if strings.HasPrefix(string(name), "sluice.dev/") {
				left = append(left, container.Name+" "+string(name))
			}
		}
	}
	return left
}

func TestReplicasShareATemplate(t *testing.T) {
	s := newScene(t)
	labels := map[string]string{"app": "web"}
	s.create(&appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](3), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       builders.MakePod("").Memory("3Gi").Obj().Spec,
			},
		},
	})
	pods := &corev1.PodList{}
	s.wait("there are three pods", func(ctx context.Context) (bool, error) {
		err := cluster.Client.List(ctx, pods, client.InNamespace(s.namespace))
		return len(pods.Items) == 3, err
	})
	claims := map[string]bool{}
	for i := range pods.Items {
		claims[s.claim(&pods.Items[i]).Name] = true
	}
	if len(claims) != 3 {
		t.Errorf("%d claims, want one for each of three pods", len(claims))
	}
	if got := s.templates(); len(got) != 1 {
		t.Errorf("%d templates, want one", len(got))
	}
}

func (s scene) templates() []resourceapi.ResourceClaimTemplate {
	s.Helper()
	templates := &resourceapi.ResourceClaimTemplateList{}
	if err := cluster.Client.List(s.Context(), templates, client.InNamespace(s.namespace)); err != nil {
		s.Fatal(err)
	}
	return templates.Items
}

func TestDryRunWritesNothing(t *testing.T) {
	s := newScene(t)
	dry := builders.MakePod("dry").Memory("5Gi").Obj()
	s.create(dry, client.DryRunAll)
	if got := s.canonical(dry); got == "" {
		t.Error("the dry run does not show what would become of the pod")
	}
	// Once the template of a pod created after it is there, the dry run's would be too.
	later := builders.MakePod("later").Memory("6Gi").Obj()
	s.create(later)
	want := s.template(later).Name
	if got := s.templates(); len(got) != 1 || got[0].Name != want {
		t.Errorf("templates %v, want only %s", got, want)
	}
}

func TestACopyOfARewrittenPodWorks(t *testing.T) {
	s := newScene(t)
	first := builders.MakePod("first").Memory("1Gi").Obj()
	s.create(first)
	second := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "second", Labels: first.Labels, Annotations: first.Annotations}}
	first.Spec.DeepCopyInto(&second.Spec)
	s.create(second)
	if diff := cmp.Diff(first.Spec.ResourceClaims, second.Spec.ResourceClaims); diff != "" {
		t.Errorf("claims (-first +second):\n%s", diff)
	}
	if s.claim(first).Name == s.claim(second).Name {
		t.Error("both pods use one claim")
	}
}

func TestAnAnnotationAloneIsRemoved(t *testing.T) {
	s := newScene(t)
	pod := builders.MakePod("p").Obj()
	pod.Annotations = map[string]string{v1alpha1.RequestAnnotation: "{}"}
	pod.Labels = map[string]string{v1alpha1.RequestLabel: "x"}
	s.create(pod)
	if len(pod.Annotations) > 0 || len(pod.Labels) > 0 {
		t.Errorf("annotations %v and labels %v stayed", pod.Annotations, pod.Labels)
	}
}

func TestReapplyingABarePodIsForbidden(t *testing.T) {
	s := newScene(t)
	manifest := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"a","image":"` +
		builders.Image + `","resources":{"limits":{"sluice.dev/gpu-memory":"1Gi"}}}]}}`
	file := s.TempDir() + "/pod.json"
	writeFile(t, file, manifest)
	if _, err := cluster.Kubectl(t.Context(), "apply", "-n", s.namespace, "-f", file); err != nil {
		t.Fatal(err)
	}
	_, err := cluster.Kubectl(t.Context(), "apply", "-n", s.namespace, "-f", file)
	if err == nil || !strings.Contains(err.Error(), "pod updates may not change fields") {
		t.Errorf("a second apply: %v; the documentation says that it is Forbidden", err)
	}
}

func TestPodsOfTheSystemAreLeftAlone(t *testing.T) {
	pod := builders.MakePod("p").Namespace(metav1.NamespaceSystem).Memory("1Gi").Obj()
	if err := cluster.Client.Create(t.Context(), pod, client.DryRunAll); err != nil {
		t.Fatal(err)
	}
	if len(pod.Spec.ResourceClaims) > 0 || len(sluiceLimits(pod)) == 0 {
		t.Error("a pod in kube-system was changed")
	}
}
