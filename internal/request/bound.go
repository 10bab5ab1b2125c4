// SPDX-License-Identifier: Apache-2.0

package request

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// insteadOfCopy is what to do where a claim that admission made for one pod was copied to another.
const insteadOfCopy = "create the pod with " + resourcePrefix + "* limits instead of a copied claim"

// rewriteOf finds the canonical request by which admission rewrote the pod before: the one in the annotation, if the pod's
// claim refers to exactly the template that is made from it. claimed says whether the claim's name is in use at all. A claim
// of a template that only admission names, without the request it is made from, is an error: no template may ever be made
// for it, or it gives something else than the pod says.
func rewriteOf(pod *corev1.Pod) (rewritten *Canonical, claimed bool, err error) {
	for i := range pod.Spec.ResourceClaims {
		claim := &pod.Spec.ResourceClaims[i]
		template := ""
		if claim.ResourceClaimTemplateName != nil {
			template = *claim.ResourceClaimTemplateName
		}
		_, ours := HashOfTemplate(template)
		switch {
		case claim.Name != ClaimName && ours:
			return nil, false, fmt.Errorf("the claim %q is of template %s, which Sluice keeps for the claim %q alone: %s",
				claim.Name, template, ClaimName, insteadOfCopy)
		case claim.Name != ClaimName:
			continue
		}
		claimed = true
		if !ours {
			continue
		}
		rewritten, err = madeFrom(template, pod.Annotations[v1alpha1.RequestAnnotation])
		if err != nil {
			return nil, true, fmt.Errorf("the claim %q does not match the annotation %s (%w): %s",
				ClaimName, v1alpha1.RequestAnnotation, err, insteadOfCopy)
		}
	}
	return rewritten, claimed, nil
}

// madeFrom reads the request that a template is made from.
func madeFrom(template, encoded string) (*Canonical, error) {
	if encoded == "" {
		return nil, errors.New("the annotation is missing")
	}
	if template != TemplateName(Hash(encoded)) {
		return nil, errors.New("it asks for something else")
	}
	canonical, err := Decode(encoded)
	if err != nil {
		return nil, err
	}
	return &canonical, nil
}

// requestOf finds the request that a rewritten container refers to.
func (c *Canonical) requestOf(resources *corev1.ResourceRequirements) (Request, bool) {
	if c == nil {
		return Request{}, false
	}
	for _, claim := range resources.Claims {
		if claim.Name != ClaimName {
			continue
		}
		i := slices.IndexFunc(c.Requests, func(r Request) bool { return r.Name == claim.Request })
		if i >= 0 {
			return c.Requests[i], true
		}
	}
	return Request{}, false
}

// missing refuses a container that refers to a request which the claim does not have. Without a request's name a container
// refers to the whole claim.
func (c *Canonical) missing(resources *corev1.ResourceRequirements) error {
	if c == nil {
		return nil
	}
	for _, claim := range resources.Claims {
		if claim.Name == ClaimName && claim.Request != "" {
			return fmt.Errorf("the claim %q has no request %q: %s", ClaimName, claim.Request, insteadOfCopy)
		}
	}
	return nil
}

// leftOut says which of a bound container's limits are left out because it is bound to something else; "" where none is.
// What the tenant wrote left the container when it was bound, so these came later: a LimitRange fills in what it misses.
func leftOut(resources *corev1.ResourceRequirements, bound Amounts) string {
	later := ours(resources.Limits)
	for name, quantity := range ours(resources.Requests) {
		if _, limited := later[name]; !limited {
			later[name] = quantity
		}
	}
	var differing []string
	for _, name := range sortedNames(later) {
		if quantity := later[name]; !bound.say(name, quantity) {
			differing = append(differing, fmt.Sprintf("%s: %s", name, quantity.String()))
		}
	}
	if len(differing) == 0 {
		return ""
	}
	return fmt.Sprintf("keeps %s; %s, added later (by a LimitRange?), is left out", bound, strings.Join(differing, ", "))
}
