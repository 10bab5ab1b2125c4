// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"

	authentication "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/builders"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// tenant is a client with the rights of the built-in role edit in the scene's namespace, and none elsewhere.
func (s scene) tenant() client.Client { return s.account("tenant", "edit") }

// account is a client with a cluster role in the scene's namespace.
func (s scene) account(name, role string) client.Client {
	s.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s.create(account, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.namespace, Name: name}},
	})
	request := &authentication.TokenRequest{Spec: authentication.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](3600)}}
	if err := admin.SubResource("token").Create(s.Context(), account, request); err != nil {
		s.Fatalf("asking for a token: %v", err)
	}
	config := rest.AnonymousClientConfig(cluster.Config)
	config.BearerToken, config.QPS = request.Status.Token, -1
	scheme, err := stack.Scheme()
	if err != nil {
		s.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		s.Fatalf("making a client: %v", err)
	}
	return c
}

// impersonated is a client of one of Kubernetes' own users.
func (s scene) impersonated(user string) client.Client {
	s.Helper()
	config := rest.CopyConfig(cluster.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	scheme, err := stack.Scheme()
	if err != nil {
		s.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		s.Fatalf("making a client: %v", err)
	}
	return c
}

// as makes objects with somebody's rights.
func (s scene) as(c client.Client, objects ...client.Object) {
	s.Helper()
	for _, object := range objects {
		object.SetNamespace(s.namespace)
		if err := c.Create(s.Context(), object); err != nil {
			s.Fatalf("creating %T %s as a tenant: %v", object, object.GetName(), err)
		}
	}
}

// asksFor is a claim that is written by hand, of one request.
func asksFor(name string, request resourceapi.DeviceRequest) *resourceapi.ResourceClaim {
	request.Name = "gpu"
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{request}}},
	}
}

// exactly asks for devices of a class; of a shared one for so much memory, "" meaning what the pool gives.
func exactly(class, memory string) *resourceapi.ExactDeviceRequest {
	return &resourceapi.ExactDeviceRequest{DeviceClassName: class, Capacity: capacity(memory)}
}

func capacity(memory string) *resourceapi.CapacityRequirements {
	if memory == "" {
		return nil
	}
	return &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{
		v1alpha1.CapacityMemory: resource.MustParse(memory),
	}}
}

// share is a claim for a share of a GPU of pool shared.
func share(name, memory string) *resourceapi.ResourceClaim {
	return asksFor(name, resourceapi.DeviceRequest{Exactly: exactly("shared.sluice.dev", memory)})
}

// limits is a pod that asks by its limits.
func limits(name, memory string) *corev1.Pod { return builders.MakePod(name).Memory(memory).Obj() }

// uses is a pod with claims that are there by these names.
func uses(name string, claims ...string) *corev1.Pod {
	pod := builders.MakePod(name).Obj()
	for _, claim := range claims {
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: claim, ResourceClaimName: ptr.To(claim)})
		pod.Spec.Containers[0].Resources.Claims = append(pod.Spec.Containers[0].Resources.Claims, corev1.ResourceClaim{Name: claim})
	}
	return pod
}

// madeFor waits for the name of the claim that Kubernetes makes for a pod.
func (s scene) madeFor(pod *corev1.Pod) string {
	s.Helper()
	name := ""
	s.wait("pod "+pod.Name+" has a claim", func(ctx context.Context) (bool, error) {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return false, err
		}
		if len(pod.Status.ResourceClaimStatuses) > 0 {
			name = ptr.Deref(pod.Status.ResourceClaimStatuses[0].ResourceClaimName, "")
		}
		return name != "", nil
	})
	return name
}

// foreign makes a DeviceClass of somebody else that goes away with the test.
func (s scene) foreign(name string, spec resourceapi.DeviceClassSpec) string {
	s.Helper()
	class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name + "-" + s.namespace}, Spec: spec}
	if err := admin.Create(s.Context(), class); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := admin.Delete(context.Background(), class); err != nil {
			s.Error(err)
		}
	})
	return class.Name
}

// role makes a cluster role about quotas that goes away with the test.
func (s scene) role(name string, verbs ...string) string {
	s.Helper()
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-" + s.namespace},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"gpuquotas"}, Verbs: verbs,
		}},
	}
	if err := admin.Create(s.Context(), role); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := admin.Delete(context.Background(), role); err != nil {
			s.Error(err)
		}
	})
	return role.Name
}
