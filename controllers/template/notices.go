// SPDX-License-Identifier: Apache-2.0

package template

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gpu/sluice/internal/request"
)

// newPod is how old a pod may be to get events. After a restart all pods are seen again; those that started long ago have
// had theirs.
const newPod = 10 * time.Minute

// told remembers which pods of a template have had their event.
type told struct {
	mu   sync.Mutex
	pods map[types.NamespacedName]map[types.UID]bool
}

// first says whether the pod is told for the first time, and remembers it.
func (t *told) first(key types.NamespacedName, pod types.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pods == nil {
		t.pods = map[types.NamespacedName]map[types.UID]bool{}
	}
	if t.pods[key] == nil {
		t.pods[key] = map[types.UID]bool{}
	}
	if t.pods[key][pod] {
		return false
	}
	t.pods[key][pod] = true
	return true
}

// retain forgets the pods of a template that are not there any more.
func (t *told) retain(key types.NamespacedName, pods []metav1.PartialObjectMetadata) {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := map[types.UID]bool{}
	for i := range pods {
		if t.pods[key][pods[i].UID] {
			kept[pods[i].UID] = true
		}
	}
	if len(kept) == 0 {
		delete(t.pods, key)
		return
	}
	t.pods[key] = kept
}

// notify writes each new pod's event, once.
func (r *Reconciler) notify(ctx context.Context, key types.NamespacedName, found references) error {
	for _, invalid := range found.invalid {
		if r.isNew(invalid.pod) && r.told.first(key, invalid.pod.UID) {
			r.invalidRequest(invalid.pod, invalid.why)
		}
	}
	if found.canonical == nil || found.canonical.Form != request.MIG {
		return nil
	}
	sentence, err := r.largerProfiles(ctx, found.canonical)
	if err != nil || sentence == "" {
		return err
	}
	for _, pod := range found.valid {
		if r.isNew(pod) && r.told.first(key, pod.UID) {
			r.largerProfile(pod, sentence)
		}
	}
	return nil
}

func (r *Reconciler) isNew(pod *metav1.PartialObjectMetadata) bool {
	return r.Clock.Since(pod.CreationTimestamp.Time) < newPod
}

// largerProfiles says which containers get a larger MIG instance than their amount suggests; "" where none does.
func (r *Reconciler) largerProfiles(ctx context.Context, canonical *request.Canonical) (string, error) {
	pools, err := r.Pools.Pools(ctx)
	if err != nil {
		return "", fmt.Errorf("reading pool %s: %w", canonical.Pool, err)
	}
	var sentences []string
	for i := range pools {
		if pools[i].Name != canonical.Pool {
			continue
		}
		for _, asked := range canonical.Requests {
			if sentence := pools[i].LargerProfile(asked); sentence != "" {
				sentences = append(sentences, fmt.Sprintf("container %q: %s", asked.Name, sentence))
			}
		}
	}
	return strings.Join(sentences, "; "), nil
}
