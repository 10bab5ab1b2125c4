// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistration "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

func TestAForeignTemplateIsReplaced(t *testing.T) {
	s := newScene(t)
	probe := builders.MakePod("probe").Memory("4Gi").Obj()
	s.create(probe, client.DryRunAll)
	foreign := &resourceapi.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: *probe.Spec.ResourceClaims[0].ResourceClaimTemplateName},
		Spec: resourceapi.ResourceClaimTemplateSpec{Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
			Requests: []resourceapi.DeviceRequest{{Name: "main", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "whole.sluice.dev"}}},
		}}},
	}
	s.create(foreign)
	s.create(builders.MakePod("p").Memory("4Gi").Obj())
	s.wait("the foreign template is replaced", func(ctx context.Context) (bool, error) {
		have := &resourceapi.ResourceClaimTemplate{}
		err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(foreign), have)
		if err != nil {
			return false, client.IgnoreNotFound(err)
		}
		return have.UID != foreign.UID && have.Spec.Spec.Devices.Requests[0].Exactly.DeviceClassName == "shared.sluice.dev", nil
	})
}

func TestATemplateThatIsDeletedOrUnlabelledComesBack(t *testing.T) {
	s := newScene(t)
	pod := builders.MakePod("p").Memory("4Gi").Obj()
	s.create(pod)
	template := s.template(pod)
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":null}}`))
	if err := cluster.Client.Patch(t.Context(), template.DeepCopy(), patch); err != nil {
		t.Fatal(err)
	}
	s.wait("the template has its labels again", func(ctx context.Context) (bool, error) {
		err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(template), template)
		return template.Labels[v1alpha1.ManagedByLabel] == v1alpha1.ManagedByValue, err
	})
	gone := template.UID
	if err := cluster.Client.Delete(t.Context(), template.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	s.wait("the template is made again", func(ctx context.Context) (bool, error) {
		err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(template), template)
		return err == nil && template.UID != gone, client.IgnoreNotFound(err)
	})
}

func TestEvents(t *testing.T) {
	s := newScene(t)
	larger := builders.MakePod("larger").Pool("mig").Memory("10Gi").Obj()
	s.create(larger)
	const want = `container "main": 10Gi does not fit 1g.10gb (9.5Gi): takes 1g.20gb (19.5Gi) or larger`
	if diff := cmp.Diff(want, s.event(larger, "LargerProfile").Note); diff != "" {
		t.Errorf("event (-want +got):\n%s", diff)
	}

	forged := builders.MakePod("forged").Memory("1Gi").Obj()
	s.create(forged)
	before := forged.DeepCopy()
	forged.Annotations[v1alpha1.RequestAnnotation] = `{"version":1}`
	// The scheduler writes to it too.
	if err := cluster.Client.Patch(t.Context(), forged, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	if got := s.event(forged, "InvalidRequest"); got.Type != corev1.EventTypeWarning {
		t.Errorf("event %v, want a warning", got)
	}
}

// The bound is a second; this machine may be busy with other tests, so only what is far from it fails.
func TestTemplatesOfABurstAreThereSoon(t *testing.T) {
	s := newScene(t)
	const pods = 60
	took := make([]time.Duration, pods)
	var group sync.WaitGroup
	for i := range pods {
		group.Go(func() {
			pod := builders.MakePod(fmt.Sprintf("p%d", i)).Memory(fmt.Sprintf("%dMi", 1000+i)).Obj()
			pod.Namespace = s.namespace
			if err := cluster.Client.Create(t.Context(), pod); err != nil {
				t.Error(err)
				return
			}
			created := time.Now()
			s.template(pod)
			took[i] = time.Since(created)
		})
	}
	group.Wait()
	var longest time.Duration
	for _, each := range took {
		longest = max(longest, each)
	}
	t.Logf("%d templates at once: the last was there %v after its pod", pods, longest)
	if longest > 10*time.Second {
		t.Errorf("a template took %v", longest)
	}
}

// A webhook whose name sorts behind ours adds a container that asks, so ours is called again.
func TestAContainerInjectedLaterIsMerged(t *testing.T) {
	s := newScene(t)
	container, err := json.Marshal(builders.MakePod("").Container("injected").Memory("1Gi").Obj().Spec.Containers[1])
	if err != nil {
		t.Fatal(err)
	}
	patch := `[{"op":"add","path":"/spec/containers/-","value":` + string(container) + `}]`
	server := httptest.NewTLSServer(injector(patch))
	defer server.Close()
	s.register(server)

	pod := builders.MakePod("p").Memory("2Gi").Obj()
	s.create(pod)
	const want = `{"version":1,"pool":"shared","form":"Shared","requests":[{"name":"injected","count":1,"memoryMi":1024},` +
		`{"name":"main","count":1,"memoryMi":2048}]}`
	if diff := cmp.Diff(want, s.canonical(pod)); diff != "" {
		t.Errorf("canonical request (-want +got):\n%s", diff)
	}
	if left := sluiceLimits(pod); len(left) > 0 {
		t.Errorf("limits that admission left: %v", left)
	}
	s.claim(pod)
}

// injector is a webhook that changes every pod in the same way.
func injector(patch string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review := &admissionv1.AdmissionReview{}
		if err := json.NewDecoder(r.Body).Decode(review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{
			UID: review.Request.UID, Allowed: true, Patch: []byte(patch), PatchType: ptr.To(admissionv1.PatchTypeJSONPatch),
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(review); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
}

// register makes the API server call another webhook for pods of the scene's namespace, and waits until it does.
func (s scene) register(server *httptest.Server) {
	s.Helper()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	config := &admissionregistration.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "zz-" + s.namespace},
		Webhooks: []admissionregistration.MutatingWebhook{{
			Name: "injector.example.com", AdmissionReviewVersions: []string{"v1"},
			ClientConfig: admissionregistration.WebhookClientConfig{URL: &server.URL, CABundle: authority},
			Rules: []admissionregistration.RuleWithOperations{{
				Operations: []admissionregistration.OperationType{admissionregistration.Create},
				Rule:       admissionregistration.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.namespace}},
			SideEffects:       ptr.To(admissionregistration.SideEffectClassNone),
		}},
	}
	if err := cluster.Client.Create(s.Context(), config); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := cluster.Client.Delete(context.Background(), config); err != nil {
			s.Error(err)
		}
	})
	s.wait("the API server calls the other webhook", func(ctx context.Context) (bool, error) {
		probe := builders.MakePod("probe").Namespace(s.namespace).Obj()
		err := cluster.Client.Create(ctx, probe, client.DryRunAll)
		return len(probe.Spec.Containers) > 1, err
	})
}

func TestWithoutAnAnswerAPodWaits(t *testing.T) {
	s := newScene(t)
	if err := cluster.Stop(t.Context(), "manager"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bringBack(t, s.namespace) })
	s.create(builders.MakePod("plain").Obj())
	pod := builders.MakePod("p").Memory("1Gi").Obj()
	s.create(pod)
	if len(sluiceLimits(pod)) == 0 {
		t.Error("the pod was changed although the webhook does not answer")
	}
	s.wait("the pod is Pending", func(ctx context.Context) (bool, error) {
		if err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return false, err
		}
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Reason == corev1.PodReasonUnschedulable {
				return pod.Spec.NodeName == "", nil
			}
		}
		return false, nil
	})
}

// bringBack starts the manager and waits until it answers.
func bringBack(t *testing.T, namespace string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	if err := cluster.Start(ctx, "manager"); err != nil {
		t.Error(err)
		return
	}
	err := stack.Poll(ctx, "the webhook answers again", func(ctx context.Context) (bool, error) {
		pod := builders.MakePod("back").Namespace(namespace).Memory("1Gi").Obj()
		err := cluster.Client.Create(ctx, pod, client.DryRunAll)
		return pod.Annotations[v1alpha1.RequestAnnotation] != "", err
	})
	if err != nil {
		t.Error(err)
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
