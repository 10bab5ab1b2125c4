// SPDX-License-Identifier: Apache-2.0

// Package dra speaks with kubelet: it serves Prepare and Unprepare on the DRA socket, registers the driver, and hands
// ResourceSlices to the library that keeps them in the API server. It is the only importer of that library.
package dra

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/utils/ptr"

	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
)

// Claims prepares and unprepares.
type Claims interface {
	Prepare(ctx context.Context, claim *resourceapi.ResourceClaim) ([]checkpoint.Result, error)
	Unprepare(ctx context.Context, uid string) error
}

// Observer is told what happened. Its methods must not block.
type Observer interface {
	// Prepared and Unprepared are called after each claim.
	Prepared(took time.Duration, err error)
	Unprepared(took time.Duration, err error)
	// Registered is called when kubelet has registered the driver, which it does each time it starts; it then has
	// deleted the node's slices.
	Registered()
	// PublishFailed is called with errors of the slices' upkeep, which goes on trying.
	PublishFailed(err error)
	// ServerFailed is called when kubelet cannot be served any more.
	ServerFailed(err error)
}

// plugin answers kubelet's calls.
type plugin struct {
	claims   Claims
	health   *Health
	observer Observer
	log      logr.Logger
}

var _ kubeletplugin.DRAPlugin = &plugin{}

// PrepareResourceClaims prepares each claim on its own: one that fails does not keep the others back.
func (p *plugin) PrepareResourceClaims(
	ctx context.Context, claims []*resourceapi.ResourceClaim,
) (map[types.UID]kubeletplugin.PrepareResult, error) {
	answers := make(map[types.UID]kubeletplugin.PrepareResult, len(claims))
	for _, claim := range claims {
		log := p.log.WithValues("claim", claim.Namespace+"/"+claim.Name, "uid", claim.UID)
		start := time.Now()
		results, err := p.claims.Prepare(ctx, claim)
		p.observer.Prepared(time.Since(start), err)
		if err != nil {
			log.Error(err, "Claim not prepared")
			answers[claim.UID] = kubeletplugin.PrepareResult{
				Err: fmt.Errorf("preparing claim %s/%s: %w", claim.Namespace, claim.Name, err),
			}
			continue
		}
		log.Info("Claim prepared", "devices", deviceNames(results))
		answers[claim.UID] = kubeletplugin.PrepareResult{Devices: answer(results)}
	}
	return answers, nil
}

// UnprepareResourceClaims releases each claim on its own.
func (p *plugin) UnprepareResourceClaims(
	ctx context.Context, claims []kubeletplugin.NamespacedObject,
) (map[types.UID]error, error) {
	answers := make(map[types.UID]error, len(claims))
	for _, claim := range claims {
		log := p.log.WithValues("claim", claim.String(), "uid", claim.UID)
		start := time.Now()
		err := p.claims.Unprepare(ctx, string(claim.UID))
		p.observer.Unprepared(time.Since(start), err)
		if err != nil {
			log.Error(err, "Claim not released; kubelet tries again")
			err = fmt.Errorf("releasing claim %s: %w", claim.NamespacedName, err)
		} else {
			log.Info("Claim released")
		}
		answers[claim.UID] = err
	}
	return answers, nil
}

// HandleError passes on what happens in the background. Publishing goes on trying by itself; a server that stopped does
// not come back, which the observer's owner answers by ending.
func (p *plugin) HandleError(_ context.Context, err error, msg string) {
	var dropped *resourceslice.DroppedFieldsError
	if errors.As(err, &dropped) {
		err = fmt.Errorf("the API server does not keep what Sluice needs: %w", err)
	}
	p.log.Error(err, "In the background", "what", msg)
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		p.observer.ServerFailed(fmt.Errorf("%s: %w", msg, err))
		return
	}
	p.observer.PublishFailed(fmt.Errorf("%s: %w", msg, err))
}

// WatchHealthStatus tells kubelet how the devices are.
func (p *plugin) WatchHealthStatus(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	return p.health.watch(ctx, reports)
}

func answer(results []checkpoint.Result) []kubeletplugin.Device {
	devices := make([]kubeletplugin.Device, 0, len(results))
	for _, r := range results {
		device := kubeletplugin.Device{
			Requests: []string{r.Request}, PoolName: r.Pool, DeviceName: r.Device, CDIDeviceIDs: r.CDIDevices,
		}
		if r.ShareID != "" {
			device.ShareID = ptr.To(types.UID(r.ShareID))
		}
		devices = append(devices, device)
	}
	return devices
}

func deviceNames(results []checkpoint.Result) []string {
	names := make([]string, 0, len(results))
	for _, r := range results {
		names = append(names, r.Device)
	}
	return names
}
