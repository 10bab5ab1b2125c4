// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// TestUsers asks the API server's authorizer about people: tenants with the built-in roles in their own namespace, and
// auditors and administrators everywhere.
func TestUsers(t *testing.T) {
	if _, err := shared.Kubectl(t.Context(), "apply", "--server-side", "-k", stack.Path("config", "rbac")); err != nil {
		t.Fatal(err)
	}
	own, other := namespaceFor(t, "own"), namespaceFor(t, "other")
	for _, role := range []string{"view", "edit"} {
		bind(t, own, role+"er", role)
	}
	for _, role := range []string{"sluice-auditor", "sluice-platform-admin", "sluice-admin"} {
		bind(t, "", role, role)
	}
	waitForAggregation(t, own)
	for _, tc := range []struct {
		name, user, verb, resource, namespace string
		want                                  bool
	}{
		{name: "who may view a namespace sees its quotas", user: "viewer", verb: "list", resource: "gpuquotas", namespace: own, want: true},
		{name: "and those of no other", user: "viewer", verb: "list", resource: "gpuquotas", namespace: other},
		{name: "who may edit a namespace sees its quotas", user: "editer", verb: "get", resource: "gpuquotas", namespace: own, want: true},
		{name: "but does not make them", user: "editer", verb: "create", resource: "gpuquotas", namespace: own},
		{name: "or change them", user: "editer", verb: "patch", resource: "gpuquotas", namespace: own},
		{name: "or delete them", user: "editer", verb: "delete", resource: "gpuquotas", namespace: own},
		{name: "or write their status", user: "editer", verb: "update", resource: "gpuquotas/status", namespace: own},
		{name: "and sees no ledger", user: "editer", verb: "get", resource: "gpuledgers"},
		{name: "an auditor sees every quota", user: "sluice-auditor", verb: "list", resource: "gpuquotas", want: true},
		{name: "and every ledger", user: "sluice-auditor", verb: "list", resource: "gpuledgers", want: true},
		{name: "and changes nothing", user: "sluice-auditor", verb: "patch", resource: "gpuquotas", namespace: own},
		{name: "the platform team makes quotas", user: "sluice-platform-admin", verb: "create", resource: "gpuquotas", namespace: own, want: true},
		{name: "but deletes none in use", user: "sluice-platform-admin", verb: "delete-in-use", resource: "gpuquotas", namespace: own},
		{name: "an administrator may", user: "sluice-admin", verb: "delete-in-use", resource: "gpuquotas", namespace: own, want: true},
		{name: "nobody writes ledgers", user: "sluice-admin", verb: "update", resource: "gpuledgers"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := may(t.Context(), tc.user, tc.verb, tc.resource, tc.namespace)
			if err != nil {
				t.Fatal(err)
			}
			if got != tc.want {
				t.Errorf("want %v, got %v", tc.want, got)
			}
		})
	}
}

// may asks whether a user may do something; with a slash, to a subresource.
func may(ctx context.Context, user, verb, resource, namespace string) (bool, error) {
	resource, subresource, _ := strings.Cut(resource, "/")
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: v1alpha1.GroupVersion.Group, Verb: verb, Resource: resource, Subresource: subresource, Namespace: namespace,
		},
	}}
	if err := shared.Client.Create(ctx, review); err != nil {
		return false, fmt.Errorf("asking what %s may do: %w", user, err)
	}
	return review.Status.Allowed, nil
}

// waitForAggregation waits until Kubernetes has added our roles to the built-in ones.
func waitForAggregation(t *testing.T, namespace string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	err := stack.Poll(ctx, "the built-in roles have Sluice's rules", func(ctx context.Context) (bool, error) {
		for _, user := range []string{"viewer", "editer"} {
			if allowed, err := may(ctx, user, "list", "gpuquotas", namespace); err != nil || !allowed {
				return false, err
			}
		}
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func namespaceFor(t *testing.T, name string) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: name + "-"}}
	if err := shared.Client.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	return namespace.Name
}

// bind gives a user a role in a namespace; "" is everywhere.
func bind(t *testing.T, namespace, user, role string) {
	t.Helper()
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}
	var binding client.Object = &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: ref, Subjects: subjects}
	if namespace != "" {
		binding = &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: user}, RoleRef: ref, Subjects: subjects}
	}
	if err := shared.Client.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
}
