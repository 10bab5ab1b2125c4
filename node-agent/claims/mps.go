// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/limits"
	"github.com/sluice-gpu/sluice/node-agent/mps"
)

// MPS is the door to the MPS daemons.
type MPS interface {
	// Running is true where a device has a daemon.
	Running(device string) bool
	// Serve makes sure that the client's device has a daemon that knows it.
	Serve(ctx context.Context, c mps.Client) error
	// Access is what the containers of a client need that was served; shareDir is where they find their share.
	Access(c mps.Client, shareDir string) (mps.Access, error)
	// Keep stops the daemons that none of the clients needs, and starts anew those that have ended.
	Keep(ctx context.Context, clients []mps.Client) error
}

// byMPS is true where the result is held by MPS.
func byMPS(r checkpoint.Result) bool { return r.MPS && hasShare(r) }

// mpsClient is the result as its device's daemon is to know it.
func mpsClient(claimUID string, r checkpoint.Result, driver string) mps.Client {
	return mps.Client{
		ClaimUID: claimUID, Index: r.Index, Device: deviceUUID(r), Driver: driver,
		MemoryMiB: r.Memory >> 20, Percent: int64(computeShare(r)) / 100,
	}
}

// MPSClients are the results of prepared claims that MPS holds.
func MPSClients(recorded checkpoint.Claims) []mps.Client {
	var clients []mps.Client
	for _, claim := range recorded.Sorted() {
		for _, r := range claim.Results {
			if claim.State == checkpoint.Prepared && byMPS(r) {
				clients = append(clients, mpsClient(claim.UID, r, r.Driver))
			}
		}
	}
	return clients
}

// reachable refuses what no process could use: it has one MPS daemon, and a daemon has one device.
func reachable(results []checkpoint.Result) error {
	for i, r := range results {
		for _, other := range results[:i] {
			if byMPS(r) && byMPS(other) && mainRequest(r) == mainRequest(other) && !sameDevice(r, other) {
				return refuse("request %s was given %s and %s, both shared by MPS: a process can use one such device only, so ask for "+
					"them in requests of their own, for different containers", mainRequest(r), other.Device, r.Device)
			}
		}
	}
	return nil
}

// mainRequest is the request of a result, without the alternative that was chosen.
func mainRequest(r checkpoint.Result) string {
	name, _, _ := strings.Cut(r.Request, "/")
	return name
}

// serve makes sure that the MPS daemons of the claim's results run. A device is never shared by MPS while processes are on
// it that no daemon holds.
func (p *Preparer) serve(ctx context.Context, claim checkpoint.Claim) error {
	for _, r := range claim.Results {
		if !byMPS(r) {
			continue
		}
		if !p.MPS.Running(deviceUUID(r)) {
			if err := p.unused(ctx, r); err != nil {
				return err
			}
		}
		if err := p.MPS.Serve(ctx, mpsClient(claim.UID, r, r.Driver)); err != nil {
			return fmt.Errorf("sharing %s by MPS: %w", r.Device, err)
		}
	}
	return nil
}

// unused refuses a device on which there are processes.
func (p *Preparer) unused(ctx context.Context, r checkpoint.Result) error {
	found, err := p.Hardware.Holders(ctx, r.GPU)
	if err != nil {
		return fmt.Errorf("looking for processes on %s: %w", r.Device, err)
	}
	gi := -1
	if r.Instance != nil {
		gi = r.Instance.GIID
	}
	var pids []int
	for _, h := range found {
		if h.GIID == gi && !slices.Contains(pids, h.PID) {
			pids = append(pids, h.PID)
		}
	}
	if len(pids) > 0 {
		return refuse("%s is to be shared by MPS, but processes %v are on it that MPS would not hold; it is tried again", r.Device, pids)
	}
	return nil
}

// access adds to a grant what makes its processes clients of MPS.
func (p *Preparer) access(grant *Grant, claimUID string, r checkpoint.Result) error {
	access, err := p.MPS.Access(mpsClient(claimUID, r, r.Driver), limits.ContainerDir(claimUID, r.Index))
	if err != nil {
		return fmt.Errorf("leading the containers of %s to MPS: %w", r.Device, err)
	}
	grant.Env = append(grant.Env, access.Env...)
	for _, m := range access.Mounts {
		grant.Mounts = append(grant.Mounts, Mount{HostPath: m.HostPath, ContainerPath: m.ContainerPath, ReadOnly: m.ReadOnly})
	}
	return nil
}

// KeepMPS brings the MPS daemons in line with the prepared claims.
func (p *Preparer) KeepMPS(ctx context.Context) error {
	unlock, err := p.Records.Lock()
	if err != nil {
		return fmt.Errorf("locking the checkpoint: %w", err)
	}
	defer unlock()
	recorded, err := p.Records.Claims()
	if err != nil {
		return fmt.Errorf("reading the prepared claims: %w", err)
	}
	return p.keepMPS(ctx, recorded)
}

func (p *Preparer) keepMPS(ctx context.Context, recorded checkpoint.Claims) error {
	if err := p.MPS.Keep(ctx, MPSClients(recorded)); err != nil {
		return fmt.Errorf("keeping the MPS daemons: %w", err)
	}
	return nil
}
