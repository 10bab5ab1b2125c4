// SPDX-License-Identifier: Apache-2.0

// Package witness watches what is allocated and what ledgers say of it, and judges afterwards: every version of every
// claim and ledger is put into the one order in which the API server stored them, so that nothing between two looks is
// missed. It counts by itself, from what the scheduler wrote into claims.
package witness

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// retry is how soon a watch that ended is taken up again.
const retry = 20 * time.Millisecond

// Witness watches from Watch until its context ends.
type Witness struct {
	client client.WithWatch
	began  time.Time

	mu      sync.Mutex
	records []record
	blind   []span
	claims  map[types.UID]*resourceapi.ResourceClaim
}

// record is one version of an object, in the API server's order.
type record struct {
	version uint64
	at      time.Time
	claim   *resourceapi.ResourceClaim
	ledger  *v1alpha1.GPULedger
	quota   *v1alpha1.GPUQuota
	gone    bool
}

// Watch begins to watch, and returns when what is there already is known.
func Watch(ctx context.Context, c client.WithWatch) (*Witness, error) {
	w := &Witness{client: c, began: time.Now(), claims: map[types.UID]*resourceapi.ResourceClaim{}}
	for _, list := range []client.ObjectList{
		&resourceapi.ResourceClaimList{}, &v1alpha1.GPULedgerList{}, &v1alpha1.GPUQuotaList{},
	} {
		f := &follower{witness: w, list: list, known: map[types.UID]client.Object{}}
		if err := f.look(ctx); err != nil {
			return nil, err
		}
		go f.follow(ctx)
	}
	return w, nil
}

// Allocated is how many claims of a namespace are allocated.
func (w *Witness) Allocated(namespace string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, claim := range w.claims {
		if claim.Namespace == namespace && claim.Status.Allocation != nil {
			n++
		}
	}
	return n
}

// Holders are the pods that allocated claims of a namespace are reserved for.
func (w *Witness) Holders(namespace string) []client.ObjectKey {
	w.mu.Lock()
	defer w.mu.Unlock()
	var holders []client.ObjectKey
	for _, claim := range w.claims {
		if claim.Namespace == namespace && claim.Status.Allocation != nil && len(claim.Status.ReservedFor) > 0 {
			holders = append(holders, client.ObjectKey{Namespace: namespace, Name: claim.Status.ReservedFor[0].Name})
		}
	}
	return holders
}

func (w *Witness) add(object client.Object, gone bool) {
	version, _ := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	r := record{version: version, at: time.Now(), gone: gone}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch o := object.(type) {
	case *resourceapi.ResourceClaim:
		r.claim = o
		w.claims[o.UID] = o
		if gone {
			delete(w.claims, o.UID)
		}
	case *v1alpha1.GPULedger:
		r.ledger = o
	case *v1alpha1.GPUQuota:
		r.quota = o
	}
	w.records = append(w.records, r)
}

// span are versions between which a watch was lost, so that ledgers and quotas were not seen.
type span struct{ from, to uint64 }

func (w *Witness) missed(from, to string) {
	first, _ := strconv.ParseUint(from, 10, 64)
	last, _ := strconv.ParseUint(to, 10, 64)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.blind = append(w.blind, span{first, last})
}

// follower follows the objects of one kind.
type follower struct {
	witness *Witness
	list    client.ObjectList
	known   map[types.UID]client.Object
	version string
}

func (f *follower) follow(ctx context.Context) {
	for ctx.Err() == nil {
		err := f.watch(ctx)
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			_ = f.look(ctx) // tried again when the watch fails again
		}
		timer := time.NewTimer(retry)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// look takes in what is there now.
func (f *follower) look(ctx context.Context) error {
	list, _ := f.list.DeepCopyObject().(client.ObjectList)
	if err := f.witness.client.List(ctx, list); err != nil {
		return fmt.Errorf("listing %T: %w", f.list, err)
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return fmt.Errorf("reading %T: %w", f.list, err)
	}
	seen := map[types.UID]bool{}
	for _, item := range items {
		object, _ := item.(client.Object)
		seen[object.GetUID()] = true
		f.take(object, false)
	}
	for uid, object := range f.known {
		if !seen[uid] {
			gone, _ := object.DeepCopyObject().(client.Object)
			gone.SetResourceVersion(list.GetResourceVersion())
			f.take(gone, true)
		}
	}
	if _, claims := f.list.(*resourceapi.ResourceClaimList); f.version != "" && !claims {
		f.witness.missed(f.version, list.GetResourceVersion())
	}
	f.version = list.GetResourceVersion()
	return nil
}

func (f *follower) take(object client.Object, gone bool) {
	before, known := f.known[object.GetUID()]
	if known && before.GetResourceVersion() == object.GetResourceVersion() && !gone {
		return
	}
	f.known[object.GetUID()] = object
	if gone {
		delete(f.known, object.GetUID())
	}
	f.witness.add(object, gone)
}

func (f *follower) watch(ctx context.Context) error {
	list, _ := f.list.DeepCopyObject().(client.ObjectList)
	w, err := f.witness.client.Watch(ctx, list, &client.ListOptions{Raw: &metav1.ListOptions{
		ResourceVersion: f.version, AllowWatchBookmarks: true,
	}})
	if err != nil {
		return fmt.Errorf("watching %T: %w", f.list, err)
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		if event.Type == watch.Error {
			return apierrors.FromObject(event.Object)
		}
		object, ok := event.Object.(client.Object)
		if !ok {
			continue
		}
		f.version = object.GetResourceVersion()
		if event.Type != watch.Bookmark {
			f.take(object, event.Type == watch.Deleted)
		}
	}
	return nil
}
