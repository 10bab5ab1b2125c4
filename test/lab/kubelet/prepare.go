// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
)

// driverTimeout is how long a driver may take for one call, as with the real kubelet.
const driverTimeout = 45 * time.Second

// errBusy says that another worker is at one of the claims; trying again soon will do.
var errBusy = errors.New("another pod's worker is at one of the claims")

// preparer calls drivers and keeps the checkpoint.
type preparer struct {
	registry   *registry
	checkpoint *checkpoint
}

// prepare makes all claims ready for a pod and returns their entries by UID. What is ready already is not asked again.
func (p *preparer) prepare(ctx context.Context, pod types.UID, claims []fetchedClaim) (map[types.UID]preparedClaim, error) {
	uids := make([]types.UID, 0, len(claims))
	for _, claim := range claims {
		uids = append(uids, claim.uid)
	}
	if !p.checkpoint.acquire(uids) {
		return nil, errBusy
	}
	defer p.checkpoint.release(uids)

	entries := p.entries(pod, claims)
	if err := p.checkpoint.put(values(entries, uids)...); err != nil {
		return nil, err
	}
	var errs []error
	for driver, open := range byDriver(entries, uids, func(c preparedClaim) bool { return !c.Done }) {
		errs = append(errs, p.prepareOn(ctx, driver, open, entries))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for uid, entry := range entries {
		entry.Done = true
		entries[uid] = entry
	}
	if err := p.checkpoint.put(values(entries, uids)...); err != nil {
		return nil, err
	}
	return entries, nil
}

// entries returns the claims' entries with the pod added to each. An entry that was not finished starts afresh.
func (p *preparer) entries(pod types.UID, claims []fetchedClaim) map[types.UID]preparedClaim {
	entries := map[types.UID]preparedClaim{}
	for _, claim := range claims {
		entry, ok := p.checkpoint.get(claim.uid)
		if !ok {
			entry = preparedClaim{Namespace: claim.namespace, Name: claim.object, UID: claim.uid}
		}
		if !entry.Done {
			entry.Drivers, entry.Devices = claim.drivers, nil
		}
		if !slices.Contains(entry.Pods, pod) {
			entry.Pods = append(entry.Pods, pod)
		}
		entries[claim.uid] = entry
	}
	return entries
}

// prepareOn asks one driver for all of a pod's claims at once and adds the devices to the entries.
func (p *preparer) prepareOn(ctx context.Context, driver string, claims []preparedClaim, entries map[types.UID]preparedClaim) error {
	client, err := p.registry.driver(driver)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, driverTimeout)
	defer cancel()
	response, err := client.NodePrepareResources(ctx, &drapb.NodePrepareResourcesRequest{Claims: wire(claims)})
	if err != nil {
		return fmt.Errorf("NodePrepareResources of %s failed: %w", driver, err)
	}
	var errs []error
	for _, claim := range claims {
		result, ok := response.GetClaims()[string(claim.UID)]
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("NodePrepareResources of %s says nothing of the claim %s", driver, claim.Name))
		case result.GetError() != "":
			errs = append(errs, fmt.Errorf("NodePrepareResources of %s failed for the claim %s: %s", driver, claim.Name, result.GetError()))
		default:
			entry := entries[claim.UID]
			entry.Devices = append(entry.Devices, devices(driver, result.GetDevices())...)
			entries[claim.UID] = entry
		}
	}
	return errors.Join(errs...)
}

// unprepare takes a pod off its claims. A claim that no other pod here uses is undone by its drivers and forgotten.
func (p *preparer) unprepare(ctx context.Context, pod types.UID) error {
	claims := p.checkpoint.ofPod(pod)
	if len(claims) == 0 {
		return nil
	}
	uids := make([]types.UID, 0, len(claims))
	for _, claim := range claims {
		uids = append(uids, claim.UID)
	}
	if !p.checkpoint.acquire(uids) {
		return errBusy
	}
	defer p.checkpoint.release(uids)

	last := map[types.UID]preparedClaim{}
	var shared []preparedClaim
	for _, uid := range uids {
		claim, ok := p.checkpoint.get(uid)
		if !ok {
			continue
		}
		if len(claim.Pods) == 1 {
			last[uid] = claim
			continue
		}
		claim.Pods = slices.DeleteFunc(claim.Pods, func(other types.UID) bool { return other == pod })
		shared = append(shared, claim)
	}
	if err := p.checkpoint.put(shared...); err != nil {
		return err
	}
	var errs []error
	for driver, claims := range byDriver(last, uids, func(preparedClaim) bool { return true }) {
		errs = append(errs, p.unprepareOn(ctx, driver, claims))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return p.checkpoint.remove(keys(last, uids)...)
}

func (p *preparer) unprepareOn(ctx context.Context, driver string, claims []preparedClaim) error {
	client, err := p.registry.driver(driver)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, driverTimeout)
	defer cancel()
	response, err := client.NodeUnprepareResources(ctx, &drapb.NodeUnprepareResourcesRequest{Claims: wire(claims)})
	if err != nil {
		return fmt.Errorf("NodeUnprepareResources of %s failed: %w", driver, err)
	}
	var errs []error
	for _, claim := range claims {
		result, ok := response.GetClaims()[string(claim.UID)]
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("NodeUnprepareResources of %s says nothing of the claim %s", driver, claim.Name))
		case result.GetError() != "":
			errs = append(errs, fmt.Errorf("NodeUnprepareResources of %s failed for the claim %s: %s", driver, claim.Name, result.GetError()))
		}
	}
	return errors.Join(errs...)
}

// byDriver groups the entries that are wanted by the drivers they need, each group in the order of uids.
func byDriver(entries map[types.UID]preparedClaim, uids []types.UID, want func(preparedClaim) bool) map[string][]preparedClaim {
	groups := map[string][]preparedClaim{}
	for _, claim := range values(entries, uids) {
		if !want(claim) {
			continue
		}
		for _, driver := range claim.Drivers {
			groups[driver] = append(groups[driver], claim)
		}
	}
	return groups
}

func wire(claims []preparedClaim) []*drapb.Claim {
	list := make([]*drapb.Claim, 0, len(claims))
	for _, claim := range claims {
		list = append(list, &drapb.Claim{Namespace: claim.Namespace, Name: claim.Name, Uid: string(claim.UID)})
	}
	return list
}

func devices(driver string, prepared []*drapb.Device) []preparedDevice {
	list := make([]preparedDevice, 0, len(prepared))
	for _, d := range prepared {
		list = append(list, preparedDevice{
			Driver: driver, Pool: d.GetPoolName(), Device: d.GetDeviceName(), ShareID: d.GetShareId(),
			Requests: d.GetRequestNames(), CDI: d.GetCdiDeviceIds(),
		})
	}
	return list
}

// values returns the map's entries in the order of uids, each once.
func values(entries map[types.UID]preparedClaim, uids []types.UID) []preparedClaim {
	list := make([]preparedClaim, 0, len(entries))
	for _, uid := range keys(entries, uids) {
		list = append(list, entries[uid])
	}
	return list
}

func keys(entries map[types.UID]preparedClaim, uids []types.UID) []types.UID {
	var list []types.UID
	for _, uid := range uids {
		if _, ok := entries[uid]; ok && !slices.Contains(list, uid) {
			list = append(list, uid)
		}
	}
	return list
}
