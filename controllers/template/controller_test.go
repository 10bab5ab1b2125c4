// SPDX-License-Identifier: Apache-2.0

package template

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/request"
)

const (
	namespace = "team-a"
	shared    = `{"version":1,"pool":"shared","form":"Shared","requests":[{"name":"a","count":1,"memoryMi":1024}]}`
	tenGi     = `{"version":1,"pool":"mig","form":"MIG","requests":[{"name":"a","count":1,"memoryMi":10240,"profiles":["1g.20gb","3g.40gb"]}]}`
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

type fakePools struct{ pools []request.Pool }

func (f fakePools) Pools(context.Context) ([]request.Pool, error) { return f.pools, nil }

// world is a reconciler with a cluster of its own.
type world struct {
	*Reconciler
	recorder *events.FakeRecorder
	clock    *testingclock.FakePassiveClock
	writes   []string
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := &world{recorder: events.NewFakeRecorder(100), clock: testingclock.NewFakePassiveClock(start)}
	written := func(verb string, object client.Object) { w.writes = append(w.writes, verb+" "+object.GetName()) }
	made := fake.NewClientBuilder().WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			written("create", object)
			return c.Create(ctx, object, options...)
		},
		Update: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.UpdateOption) error {
			written("update", object)
			return c.Update(ctx, object, options...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			written("delete", object)
			return c.Delete(ctx, object, options...)
		},
	}).Build()
	w.Reconciler = &Reconciler{
		Client: made, Live: made, Recorder: w.recorder, Clock: w.clock,
		Pools: fakePools{[]request.Pool{{Name: "mig", Form: request.MIG, Profiles: []request.Profile{
			{Name: "1g.10gb", Memory: 9728 << 20, Compute: 14}, {Name: "1g.20gb", Memory: 19968 << 20, Compute: 14},
		}}}},
	}
	return w
}

func (w *world) reconcile(t *testing.T, encoded string) reconcile.Result {
	t.Helper()
	result, err := w.Reconcile(t.Context(), reconcile.Request{NamespacedName: keyOf(encoded)})
	if err != nil {
		t.Fatalf("reconciling: %v", err)
	}
	return result
}

func (w *world) template(t *testing.T) *resourceapi.ResourceClaimTemplate {
	t.Helper()
	have := &resourceapi.ResourceClaimTemplate{}
	if err := w.Client.Get(t.Context(), keyOf(shared), have); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		t.Fatal(err)
	}
	return have
}

func (w *world) events() []string {
	var written []string
	for {
		select {
		case event := <-w.recorder.Events:
			written = append(written, event)
		default:
			return written
		}
	}
}

func keyOf(encoded string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: request.TemplateName(request.Hash(encoded))}
}

// podWith is a pod with an annotation and the hash of another text.
func podWith(name, encoded, hashed string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(start.Add(-time.Second)),
		Labels:      map[string]string{v1alpha1.RequestLabel: request.Hash(hashed)},
		Annotations: map[string]string{v1alpha1.RequestAnnotation: encoded},
	}}
}

func wanted(t *testing.T) *resourceapi.ResourceClaimTemplate {
	t.Helper()
	canonical, err := request.Decode(shared)
	if err != nil {
		t.Fatal(err)
	}
	return render(namespace, request.Hash(shared), shared, &canonical)
}

func TestTemplateIsMade(t *testing.T) {
	foreign := wanted(t)
	foreign.Labels, foreign.Annotations = nil, nil
	foreign.Spec.Spec.Devices.Requests[0].Exactly.Count = 16
	unlabelled := wanted(t)
	unlabelled.Labels, unlabelled.Annotations = map[string]string{"team": "a"}, nil
	name := keyOf(shared).Name

	for _, tc := range []struct {
		name   string
		have   *resourceapi.ResourceClaimTemplate
		writes []string
		labels map[string]string
	}{
		{name: "where there is none", writes: []string{"create " + name}},
		{name: "once", have: wanted(t)},
		{
			name: "in place of a foreign one under its name", have: foreign,
			writes: []string{"delete " + name, "create " + name},
		},
		{
			name: "of one that only lacks the labels", have: unlabelled,
			writes: []string{"update " + name}, labels: map[string]string{"team": "a"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			objects := []client.Object{podWith("p", shared, shared), podWith("q", shared, shared)}
			if tc.have != nil {
				objects = append(objects, tc.have.DeepCopy())
			}
			w := newWorld(t, objects...)
			w.reconcile(t, shared)
			if diff := cmp.Diff(tc.writes, w.writes); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
			want := wanted(t)
			want.Labels = merged(want.Labels, tc.labels)
			got := w.template(t)
			if got == nil {
				t.Fatal("there is no template")
			}
			got.ResourceVersion = ""
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("template (-want +got):\n%s", diff)
			}
		})
	}
}

// The manager's cache holds only labelled templates, so a foreign one first shows when ours cannot be created.
func TestForeignTemplateThatTheCacheLacks(t *testing.T) {
	foreign := wanted(t)
	foreign.Labels = nil
	foreign.Spec.Spec.Devices.Requests[0].Exactly.Count = 16
	w := newWorld(t, podWith("p", shared, shared), foreign)
	w.Client = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{ //nolint:forcetypeassert,errcheck // The fake client is one.
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if err := c.Get(ctx, key, object, options...); err != nil {
				return err
			}
			if object.GetLabels()[v1alpha1.ManagedByLabel] == "" {
				return apierrors.NewNotFound(resourceapi.Resource("resourceclaimtemplates"), key.Name)
			}
			return nil
		},
	})
	w.reconcile(t, shared)
	if diff := cmp.Diff(wanted(t).Spec, w.template(t).Spec); diff != "" {
		t.Errorf("template (-want +got):\n%s", diff)
	}
}

func TestInvalidAnnotation(t *testing.T) {
	old := podWith("old", "", shared)
	old.CreationTimestamp = metav1.NewTime(start.Add(-time.Hour))
	w := newWorld(t, podWith("forged", tenGi, shared), podWith("garbage", "{}", shared), podWith("bare", "", shared), old)
	w.reconcile(t, shared)
	w.reconcile(t, shared)
	if len(w.writes) > 0 {
		t.Errorf("writes: %v", w.writes)
	}
	const advice = "): create the pod again with sluice.dev/* limits and without this annotation"
	want := []string{
		"Warning InvalidRequest the annotation sluice.dev/request is not what admission wrote (the annotation is missing" + advice,
		"Warning InvalidRequest the annotation sluice.dev/request is not what admission wrote (the label's hash is not that of the annotation" + advice,
		"Warning InvalidRequest the annotation sluice.dev/request is not what admission wrote (the canonical request is invalid: version is 0, not 1" + advice,
	}
	if diff := cmp.Diff(want, w.events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestOneValidPodIsEnough(t *testing.T) {
	w := newWorld(t, podWith("a", "{}", shared), podWith("b", shared, shared))
	w.reconcile(t, shared)
	if w.template(t) == nil {
		t.Error("there is no template")
	}
	if got := len(w.events()); got != 1 {
		t.Errorf("%d events, want one for the pod with the bad annotation", got)
	}
}

func TestLargerProfileIsSaidOnce(t *testing.T) {
	w := newWorld(t, podWith("a", tenGi, tenGi))
	w.reconcile(t, tenGi)
	const want = `Normal LargerProfile container "a": 10Gi does not fit 1g.10gb (9.5Gi): takes 1g.20gb (19.5Gi) or larger`
	if diff := cmp.Diff([]string{want}, w.events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if err := w.Client.Create(t.Context(), podWith("b", tenGi, tenGi)); err != nil {
		t.Fatal(err)
	}
	w.reconcile(t, tenGi)
	if diff := cmp.Diff([]string{want}, w.events()); diff != "" {
		t.Errorf("events after a second pod came (-want +got):\n%s", diff)
	}
}

func TestUnusedTemplateIsRemoved(t *testing.T) {
	pod := podWith("p", shared, shared)
	w := newWorld(t, pod)
	w.reconcile(t, shared)
	if err := w.Client.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	step := func(at time.Duration, left time.Duration, there bool) {
		t.Helper()
		w.clock.SetTime(start.Add(at))
		if got := w.reconcile(t, shared).RequeueAfter; got != left {
			t.Errorf("after %v: comes again after %v, want %v", at, got, left)
		}
		if got := w.template(t) != nil; got != there {
			t.Errorf("after %v: there %v, want %v", at, got, there)
		}
	}
	step(0, 10*time.Minute, true)
	step(4*time.Minute, 6*time.Minute, true)
	back := podWith("back", shared, shared)
	if err := w.Client.Create(t.Context(), back); err != nil {
		t.Fatal(err)
	}
	step(9*time.Minute, 0, true)
	if err := w.Client.Delete(t.Context(), back); err != nil {
		t.Fatal(err)
	}
	step(11*time.Minute, 10*time.Minute, true)
	step(20*time.Minute, time.Minute, true)
	step(21*time.Minute, 0, false)
	step(22*time.Minute, 0, false)
}

func TestUnusedTemplateStaysWhileTheAPIServerHasAPod(t *testing.T) {
	w := newWorld(t, wanted(t))
	w.Live = fake.NewClientBuilder().WithObjects(podWith("unseen", shared, shared)).Build()
	w.reconcile(t, shared)
	w.clock.SetTime(start.Add(11 * time.Minute))
	if got := w.reconcile(t, shared).RequeueAfter; got != unusedFor {
		t.Errorf("comes again after %v, want %v", got, unusedFor)
	}
	if w.template(t) == nil {
		t.Error("the template was removed")
	}
}

func TestTemplatesOfOthersAreLeftAlone(t *testing.T) {
	unlabelled := wanted(t)
	unlabelled.Labels = nil
	w := newWorld(t, unlabelled)
	w.clock.SetTime(start.Add(time.Hour))
	w.reconcile(t, shared)
	if result, err := w.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: "sluice-mine"}}); err != nil || !result.IsZero() {
		t.Errorf("a template of another name: %v, %v", result, err)
	}
	if len(w.writes) > 0 {
		t.Errorf("writes: %v", w.writes)
	}
}

func TestNothingIsMadeInANamespaceBeingDeleted(t *testing.T) {
	w := newWorld(t, podWith("p", shared, shared))
	w.Client = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{ //nolint:forcetypeassert,errcheck // The fake client is one.
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			err := apierrors.NewForbidden(resourceapi.Resource("resourceclaimtemplates"), "x", fmt.Errorf("namespace is being deleted"))
			err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
			return err
		},
	})
	w.reconcile(t, shared)
}

func TestPodNamesItsTemplate(t *testing.T) {
	for _, tc := range []struct {
		name string
		hash string
		want int
	}{
		{"a hash", request.Hash(shared), 1},
		{"no hash", "", 0},
		{"something else", "main", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := podWith("p", shared, shared)
			pod.Labels[v1alpha1.RequestLabel] = tc.hash
			if got := templateOf(t.Context(), pod); len(got) != tc.want {
				t.Errorf("got %v, want %d", got, tc.want)
			}
		})
	}
}

func TestLongEventIsCut(t *testing.T) {
	if got := cut(strings.Repeat("x", 2000)); len(got) != maxNote || !strings.HasSuffix(got, "...") {
		t.Errorf("got %d bytes ending in %q", len(got), got[len(got)-3:])
	}
}
