// SPDX-License-Identifier: Apache-2.0

package violations

import (
	"context"
	"fmt"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/violation"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
)

const (
	// maxNames bounds pods and processes, as the API does.
	maxNames = 8
	// steadyPart is how much what is held must change to be said anew, as one part in so many of it.
	steadyPart = 8
	// askTime bounds the question which pods have a claim, askAgain how often it is asked.
	askTime  = 500 * time.Millisecond
	askAgain = time.Minute
)

// podsOf are the pods of a claim as the API server knew them.
type podsOf struct {
	pods  []checkpoint.Pod
	asked time.Time
}

// describe says a finding as the API does.
func (w *Watcher) describe(ctx context.Context, n *node, f violation.Finding) v1alpha1.Violation {
	s := n.shares[f.Share]
	v := v1alpha1.Violation{
		ClaimUID: f.Share.ClaimUID, Result: ptr.To(int32(f.Share.Index)), Claim: s.claim.Namespace + "/" + s.claim.Name,
		GPU: s.result.GPU, Reason: string(f.Reason), Action: s.action, Since: ptr.To(metav1.NewTime(f.Since)),
		Held:  resource.NewQuantity(int64(f.Held), resource.BinarySI),
		Limit: resource.NewQuantity(int64(f.Limit), resource.BinarySI),
	}
	for _, pod := range w.podsIn(ctx, s.claim, f.Pods) {
		v.Pods = append(v.Pods, s.claim.Namespace+"/"+pod.Name)
	}
	for _, p := range f.Unregistered {
		v.Processes = append(v.Processes, p.Name)
	}
	v.Pods, v.Processes = first(v.Pods), first(v.Processes)
	return v
}

func first(names []string) []string { return names[:min(len(names), maxNames)] }

// podsIn are the pods of a claim, those of the given UIDs where any is known. A pod that was given a claim that was prepared
// already is not in the record: it is asked for.
func (w *Watcher) podsIn(ctx context.Context, claim checkpoint.Claim, uids []string) []checkpoint.Pod {
	known := claim.Pods
	if slices.ContainsFunc(uids, func(uid string) bool { return !has(known, uid) }) {
		known = w.askPods(ctx, claim)
	}
	var found []checkpoint.Pod
	for _, uid := range uids {
		if i := slices.IndexFunc(known, func(p checkpoint.Pod) bool { return p.UID == uid }); i >= 0 {
			found = append(found, known[i])
		}
	}
	if len(found) == 0 {
		return known
	}
	return found
}

func has(pods []checkpoint.Pod, uid string) bool {
	return slices.ContainsFunc(pods, func(p checkpoint.Pod) bool { return p.UID == uid })
}

// askPods asks the API server which pods have a claim, now and then, and goes on with what is recorded where it does not say.
func (w *Watcher) askPods(ctx context.Context, claim checkpoint.Claim) []checkpoint.Pod {
	now := w.Clock.Now()
	last, asked := w.pods[claim.UID]
	if asked && now.Sub(last.asked) < askAgain {
		return last.pods
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	answer := podsOf{pods: claim.Pods, asked: now}
	found, err := w.Claims.Get(ctx, claim.Namespace, claim.Name)
	if err != nil {
		w.Log.V(1).Info("The API server does not say which pods have a claim", "claim", claim.Namespace+"/"+claim.Name, "err", err.Error())
	}
	if err == nil && found != nil && string(found.UID) == claim.UID {
		answer.pods = reservedFor(found)
	}
	w.pods[claim.UID] = answer
	return answer.pods
}

// meet asks which claims of a device a pod has that uses it and is in no record, and is true where it has one. Kubelet has a claim
// prepared for the first pod that is given it, and not for those after it. That a pod has a claim is written before the pod
// starts: what was answered once need not be asked again soon.
func (w *Watcher) meet(ctx context.Context, n *node, pod, device string) bool {
	if now := w.Clock.Now(); w.met[pod].IsZero() || now.Sub(w.met[pod]) >= askAgain {
		w.met[pod] = now
		ctx, cancel := context.WithTimeout(ctx, askTime)
		defer cancel()
		for _, id := range n.order {
			s := n.shares[id]
			if s.device != device || ctx.Err() != nil {
				continue
			}
			found, err := w.Claims.Get(ctx, s.claim.Namespace, s.claim.Name)
			if err != nil {
				delete(w.met, pod) // the next look asks again
				continue
			}
			if found != nil && string(found.UID) == id.ClaimUID && has(reservedFor(found), pod) {
				w.pods[id.ClaimUID] = podsOf{pods: reservedFor(found), asked: now}
				n.later[id.ClaimUID] = reservedFor(found)
			}
		}
	}
	return len(n.on(n.ofPod(pod), device)) > 0
}

func reservedFor(claim *resourceapi.ResourceClaim) []checkpoint.Pod {
	var pods []checkpoint.Pod
	for _, user := range claim.Status.ReservedFor {
		if user.APIGroup == "" && user.Resource == "pods" {
			pods = append(pods, checkpoint.Pod{Name: user.Name, UID: string(user.UID)})
		}
	}
	return pods
}

// steady is what is said of a violation that has been told of: what changes a little at every look is not said anew.
func steady(before, now v1alpha1.Violation) v1alpha1.Violation {
	if before.Reason != now.Reason {
		return now
	}
	if difference := now.Held.Value() - before.Held.Value(); max(difference, -difference) < before.Held.Value()/steadyPart {
		now.Held = before.Held
	}
	if same(before.Processes, now.Processes) {
		now.Processes = before.Processes
	}
	if same(before.Pods, now.Pods) {
		now.Pods = before.Pods
	}
	return now
}

// same is true of lists of the same names, in whatever order.
func same(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// unverified are sentences about those without a figure, each once. A process that has a container's share is its pod's; of others
// nothing has to be known.
func unverified(n *node, found []violation.Unverified) []string {
	var said []string
	for _, u := range found {
		s, ok := n.shares[u.Share]
		if !ok {
			continue
		}
		text := fmt.Sprintf("%s: nothing is to be seen: %s", s.result.Device, u.Why)
		if u.Why == "" {
			text = fmt.Sprintf("%s: NVML does not say what %s of %s holds", s.result.Device, u.Process.Name, s.claim.Users()[0])
		}
		if !slices.Contains(said, text) {
			said = append(said, text)
		}
	}
	slices.Sort(said)
	return said
}
