// SPDX-License-Identifier: Apache-2.0

package template

import (
	resourceapi "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/request"
)

// render is the template of a request.
func render(namespace, hash, encoded string, canonical *request.Canonical) *resourceapi.ResourceClaimTemplate {
	return &resourceapi.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      request.TemplateName(hash),
			Labels: map[string]string{
				v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue,
				v1alpha1.RequestLabel:   hash,
			},
			Annotations: map[string]string{v1alpha1.RequestAnnotation: encoded},
		},
		Spec: request.Template(canonical),
	}
}

// verdict is what has to be done with a template that exists.
type verdict int

const (
	// keep: it is as it should be.
	keep verdict = iota
	// mark: its spec is right, but it lacks our labels or annotation.
	mark
	// replace: its spec, which cannot be changed, is somebody else's.
	replace
)

// compare says what has to be done so that have becomes want. Labels and annotations that others added stay.
func compare(have, want *resourceapi.ResourceClaimTemplate) verdict {
	if !apiequality.Semantic.DeepEqual(have.Spec, want.Spec) {
		return replace
	}
	if !contains(have.Labels, want.Labels) || !contains(have.Annotations, want.Annotations) {
		return mark
	}
	return keep
}

func contains(have, want map[string]string) bool {
	for key, value := range want {
		if have[key] != value {
			return false
		}
	}
	return true
}
