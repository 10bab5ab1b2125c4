// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/controllers/quota/sight"
	"github.com/sluice-gpu/sluice/internal/quota"
)

// ClaimsPath is where allocations are judged; config/webhook names it too.
const ClaimsPath = "/judge-claims"

// answerIn is how long a verdict may take: a little less than the API server waits for it.
const answerIn = 9 * time.Second

// maxVersion is the longest resourceVersion that a ledger holds.
const maxVersion = 64

// Charger has an allocation allowed: nil once its cost is reserved, a *quota.Refusal where it does not fit, and another
// error where nothing was decided.
type Charger interface {
	Charge(ctx context.Context, ledger string, ask quota.Ask) error
}

// Sight is what a verdict sees of the cluster.
type Sight interface {
	// Grants are what the allocation of a claim gives.
	Grants(ctx context.Context, claim *resourceapi.ResourceClaim) ([]quota.Grant, error)
	// DomainOf is the domain of a namespace; nil where it has no quota.
	DomainOf(ctx context.Context, namespace string) (*quota.Domain, error)
	// Pool is a pool; nil where there is none.
	Pool(ctx context.Context, name string) (*v1alpha1.GPUPool, error)
	// LabelsOf are the labels of a namespace.
	LabelsOf(ctx context.Context, namespace string) (map[string]string, error)
	// Ledger is a ledger as the API server has it.
	Ledger(ctx context.Context, name string) (*quota.Ledger, error)
}

// Claims judges allocations.
type Claims struct {
	// Cache is the manager's cache, and Live asks the API server.
	Cache, Live client.Reader
	// Sight sees quotas and devices.
	Sight Sight
	// Charger charges.
	Charger Charger
	// Decoder reads claims.
	Decoder admission.Decoder
	// Notes tells people and counts.
	Notes *Notes
	// Clock tells the time.
	Clock clock.PassiveClock
}

var _ admission.Handler = &Claims{}

// Handle allows an allocation once its cost is reserved. Where that cannot be decided, it is refused and tried again by
// the scheduler.
func (j *Claims) Handle(ctx context.Context, review admission.Request) admission.Response {
	claim, before := &resourceapi.ResourceClaim{}, &resourceapi.ResourceClaim{}
	if review.Operation != admissionv1.Update || review.SubResource != "status" {
		return admission.Allowed("")
	}
	if err := j.Decoder.Decode(review, claim); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("reading the claim: %w", err))
	}
	if err := j.Decoder.DecodeRaw(review.OldObject, before); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("reading the claim as it was: %w", err))
	}
	if _, err := resourceversion.CompareResourceVersion(before.ResourceVersion, before.ResourceVersion); err != nil ||
		len(before.ResourceVersion) > maxVersion {
		// A ledger cannot hold such a version, and one write serves all who wait for the same ledger.
		return admission.Errored(http.StatusBadRequest, errors.New("the claim as it was has no resourceVersion"))
	}
	if claim.Status.Allocation == nil || before.Status.Allocation != nil {
		return admission.Allowed("")
	}
	ctx, cancel := context.WithTimeout(ctx, answerIn)
	defer cancel()
	dryRun := ptr.Deref(review.DryRun, false)
	return j.answer(ctx, claim, dryRun, j.judge(ctx, claim, before, dryRun))
}

// answer says what was decided, and notes refusals; of a dry run nothing stays.
func (j *Claims) answer(ctx context.Context, claim *resourceapi.ResourceClaim, dryRun bool, err error) admission.Response {
	var refusal *quota.Refusal
	switch {
	case err == nil:
		return admission.Allowed("")
	case errors.As(err, &refusal):
		if !dryRun {
			j.Notes.refused(claim, refusal)
		}
		return admission.Denied(refusal.Sentence)
	default:
		logr.FromContextOrDiscard(ctx).Error(err, "An allocation waits", "claim", client.ObjectKeyFromObject(claim))
		return admission.Errored(http.StatusServiceUnavailable, fmt.Errorf("this allocation is tried again: %w", err))
	}
}

// judge decides: nil allows, a *quota.Refusal refuses, another error says that nothing was decided.
func (j *Claims) judge(ctx context.Context, claim, before *resourceapi.ResourceClaim, dryRun bool) error {
	grants, err := j.Sight.Grants(ctx, claim)
	if err != nil || len(grants) == 0 {
		return err //nolint:wrapcheck // for people already
	}
	// Before anything is said of a namespace: whoever reaches this server can ask.
	if err := j.exists(ctx, claim); err != nil {
		return err
	}
	domain, err := j.Sight.DomainOf(ctx, claim.Namespace)
	if err != nil {
		return fmt.Errorf("reading the quotas of namespace %s: %w", claim.Namespace, err)
	}
	if err := j.tenancy(ctx, claim.Namespace, grants, domain); err != nil {
		return err
	}
	if domain == nil {
		return j.stays(ctx, claim.Namespace)
	}
	if refusal := domain.OutOfBounds(claim.Namespace, grants); refusal != nil {
		return refusal
	}
	ask := quota.Ask{
		UID: string(claim.UID), Namespace: claim.Namespace, Name: claim.Name, Version: before.ResourceVersion,
		Since: claim.CreationTimestamp.Time, Charges: quota.Total(grants),
	}
	if dryRun {
		return j.tryOut(ctx, domain, ask)
	}
	start := j.Clock.Now()
	defer func() { j.Notes.charged(j.Clock.Since(start)) }()
	return j.Charger.Charge(ctx, domain.Ledger, ask) //nolint:wrapcheck // for people already
}

// stays refuses where a namespace without a quota is being deleted: it may have had one, which went before its pods did.
func (j *Claims) stays(ctx context.Context, namespace string) error {
	object := sight.NamespaceMetadata()
	err := j.Live.Get(ctx, client.ObjectKey{Name: namespace}, object)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("reading namespace %s: %w", namespace, err)
	case err == nil && !object.DeletionTimestamp.IsZero():
		return quota.Ending(namespace)
	default:
		return nil
	}
}

// tryOut decides without charging.
func (j *Claims) tryOut(ctx context.Context, domain *quota.Domain, ask quota.Ask) error {
	ledger, err := j.Sight.Ledger(ctx, domain.Ledger)
	if err != nil {
		return err //nolint:wrapcheck // it says what was done
	}
	if refusal := domain.Verdict(ledger, ask, j.Clock.Now()); refusal != nil {
		return refusal
	}
	return nil
}

// tenancy holds each pool of an allocation against its tenancy.
func (j *Claims) tenancy(ctx context.Context, namespace string, grants []quota.Grant, domain *quota.Domain) error {
	labels, err := j.Sight.LabelsOf(ctx, namespace)
	if err != nil {
		return err //nolint:wrapcheck // it says what was done
	}
	seen := map[string]bool{}
	for _, grant := range grants {
		if grant.Pool == "" || seen[grant.Pool] {
			continue
		}
		seen[grant.Pool] = true
		pool, err := j.Sight.Pool(ctx, grant.Pool)
		switch {
		case err != nil:
			return err //nolint:wrapcheck // it says what was done
		case pool == nil:
			return fmt.Errorf("GPUPool %s of device %s is gone", grant.Pool, grant.Device.Device)
		}
		if refusal := quota.Admits(pool, namespace, labels, domain); refusal != nil {
			return refusal
		}
	}
	return nil
}

// exists makes sure that there is such a claim and that it holds nothing yet, so that nobody who merely reaches this
// address fills a ledger with inventions. What the cache says against it may be old.
func (j *Claims) exists(ctx context.Context, claim *resourceapi.ResourceClaim) error {
	for _, reader := range []client.Reader{j.Cache, j.Live} {
		stored := &resourceapi.ResourceClaim{}
		err := reader.Get(ctx, client.ObjectKeyFromObject(claim), stored)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading claim %s/%s: %w", claim.Namespace, claim.Name, err)
		}
		if err == nil && stored.UID == claim.UID && stored.Status.Allocation == nil {
			return nil
		}
	}
	return apierrors.NewConflict(resourceapi.Resource("resourceclaims"), claim.Name,
		errors.New("the claim is not there, or is allocated already"))
}
