// SPDX-License-Identifier: Apache-2.0

package deviceclass_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/controllers"
	"github.com/sluice-gpu/sluice/controllers/deviceclass"
	"github.com/sluice-gpu/sluice/internal/assign"
	"github.com/sluice-gpu/sluice/test/builders"
)

func fakeClient(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme, err := controllers.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
}

func reconcile(t *testing.T, c client.Client) error {
	t.Helper()
	_, err := deviceclass.New(c, true).Reconcile(t.Context(), ctrl.Request{})
	return err
}

// classesOf are the classes with their extended resource names.
func classesOf(t *testing.T, c client.Client) map[string]string {
	t.Helper()
	list := &resourceapi.DeviceClassList{}
	if err := c.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, class := range list.Items {
		found[class.Name] = ptr.Deref(class.Spec.ExtendedResourceName, "")
	}
	return found
}

func want(t *testing.T, c client.Client, classes map[string]string) {
	t.Helper()
	if diff := cmp.Diff(classes, classesOf(t, c)); diff != "" {
		t.Errorf("classes (-want +got):\n%s", diff)
	}
}

func migNode() *v1alpha1.GPUNode {
	pool := builders.MakePool("mig").MIG().Obj()
	return builders.MakeGPUNode("n", 1).Decided(assign.Decision(pool, builders.UUID("n", 0))).Obj()
}

func TestClassesFollowThePools(t *testing.T) {
	c := fakeClient(t, builders.MakePool("shared").Obj(), builders.MakePool("whole").Mode(v1alpha1.SharingExclusive).Obj(),
		builders.MakePool("mig").MIG().Obj(), migNode())
	if err := reconcile(t, c); err != nil {
		t.Fatal(err)
	}
	want(t, c, map[string]string{
		"shared.sluice.dev": "", "whole.sluice.dev": "", "gpu.sluice.dev": "nvidia.com/gpu",
		"mig-1g.10gb.sluice.dev": "nvidia.com/mig-1g.10gb", "mig-3g.40gb.sluice.dev": "nvidia.com/mig-3g.40gb",
	})

	for _, object := range []client.Object{
		builders.MakePool("shared").Obj(), builders.MakePool("whole").Obj(), migNode(),
	} {
		if err := c.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	if err := reconcile(t, c); err != nil {
		t.Fatal(err)
	}
	want(t, c, map[string]string{})
}

func TestSomebodyElsesClassesStay(t *testing.T) {
	c := fakeClient(t, builders.MakePool("shared").Obj(), builders.MakePool("whole").Mode(v1alpha1.SharingExclusive).Obj(),
		&resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "shared.sluice.dev"}},
		&resourceapi.DeviceClass{
			ObjectMeta: metav1.ObjectMeta{Name: "gpu.example.com"},
			Spec:       resourceapi.DeviceClassSpec{ExtendedResourceName: ptr.To("nvidia.com/gpu")},
		})
	if err := reconcile(t, c); err != nil {
		t.Fatal(err)
	}
	want(t, c, map[string]string{
		"shared.sluice.dev": "", "whole.sluice.dev": "", "gpu.sluice.dev": "", "gpu.example.com": "nvidia.com/gpu",
	})
	class := &resourceapi.DeviceClass{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "shared.sluice.dev"}, class); err != nil {
		t.Fatal(err)
	}
	if len(class.Spec.Selectors) > 0 || len(class.Labels) > 0 {
		t.Errorf("somebody else's class was changed: %+v", class)
	}
}

func TestAChangedClassIsRepaired(t *testing.T) {
	c := fakeClient(t, builders.MakePool("shared").Obj())
	if err := reconcile(t, c); err != nil {
		t.Fatal(err)
	}
	class := &resourceapi.DeviceClass{}
	key := client.ObjectKey{Name: "shared.sluice.dev"}
	if err := c.Get(t.Context(), key, class); err != nil {
		t.Fatal(err)
	}
	before := class.DeepCopy()
	class.Spec.Selectors = nil
	class.Annotations = map[string]string{"owner": "me"}
	if err := c.Update(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	if err := reconcile(t, c); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), key, class); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before.Spec, class.Spec); diff != "" {
		t.Errorf("repaired class (-want +got):\n%s", diff)
	}
	if class.Annotations["owner"] != "me" {
		t.Error("the repair took an annotation away")
	}
}

func TestOneFailureDoesNotKeepTheOthersBack(t *testing.T) {
	refused := errors.New("refused")
	c := interceptor.NewClient(fakeClient(t, builders.MakePool("a").Obj(), builders.MakePool("b").Obj()), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if object.GetName() == "a.sluice.dev" {
				return refused
			}
			return c.Create(ctx, object, options...)
		},
	})
	if err := reconcile(t, c); !errors.Is(err, refused) {
		t.Errorf("want the failure reported, got: %v", err)
	}
	if names := slices.Sorted(maps.Keys(classesOf(t, c))); !slices.Equal(names, []string{"b.sluice.dev"}) {
		t.Errorf("want the other class, got %v", names)
	}
}
