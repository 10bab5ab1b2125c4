// SPDX-License-Identifier: Apache-2.0

// Package divide keeps GPUs divided as their static layouts say: MIG mode where it can be turned on without a reset, and
// the instances, by profile and start. What it wants is the record of what is published, so that a layout comes back after
// a boot without the API server; what it makes is recorded before it is made, so that a kill at any point leaves nothing
// that the next call does not complete or destroy. It never destroys what a claim or a process has.
package divide

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/devices"
	"github.com/sluice-gpu/sluice/internal/gpu"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/holders"
	"github.com/sluice-gpu/sluice/node-agent/nvml"
	"github.com/sluice-gpu/sluice/node-agent/publish"
)

// Hardware is the NVML door.
type Hardware interface {
	Look(ctx context.Context) (gpu.Node, error)
	CreateGPUInstance(ctx context.Context, gpuUUID string, p gpu.Placement) (giID int, err error)
	CreateComputeInstance(ctx context.Context, gpuUUID string, giID int) (ciID int, migUUID string, err error)
	DestroyInstance(ctx context.Context, gpuUUID string, giID int) error
	SetMIGMode(ctx context.Context, gpuUUID string, on bool) error
}

// Holders says who holds a GPU.
type Holders interface {
	On(ctx context.Context, gpuUUID string, recorded checkpoint.Claims) ([]holders.Process, error)
}

// Records is the checkpoint.
type Records interface {
	Lock() (unlock func(), err error)
	Claims() (checkpoint.Claims, error)
	SaveClaims(c checkpoint.Claims) error
	Published() (checkpoint.Published, error)
	Made() (checkpoint.Made, error)
	SaveMade(m checkpoint.Made) error
}

// Divider divides GPUs. Only the node's active agent has one.
type Divider struct {
	// BootID tells this boot of the node from every other.
	BootID   string
	Records  Records
	Hardware Hardware
	Holders  Holders
	Log      logr.Logger
}

// Result is what a call came to.
type Result struct {
	// Changed is true where something was made or destroyed: a look from before is out of date.
	Changed bool
	// Troubles are what stands against the layout of a GPU, by UUID.
	Troubles map[string]publish.Trouble
	// Foreign says of GPUs, by UUID, what somebody else had done to their instances and was repaired.
	Foreign map[string]string
}

// turn bounds how long claims of the node wait for GPUs that are being divided. What is left is done the next time.
const turn = 25 * time.Second

// Divide brings the GPUs of static layouts in line, all of them at once, and destroys what layouts left on GPUs that have
// none any more. Calling it again goes on where it stopped. Where the given look shows nothing to do it takes nobody's time.
func (d *Divider) Divide(ctx context.Context, look gpu.Node) (Result, error) {
	records, err := d.read()
	if err != nil {
		return Result{}, err
	}
	if list := d.plan(ctx, look, records); idle(list, look, records) {
		return Result{Troubles: troubles(list)}, nil
	}
	unlock, err := d.Records.Lock()
	if err != nil {
		return Result{}, fmt.Errorf("locking the checkpoint: %w", err)
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(ctx, turn)
	defer cancel()
	// Until here claims could come and go.
	if records, err = d.read(); err != nil {
		return Result{}, err
	}
	look, lookErr := d.look(ctx)
	result, err := d.carryOut(ctx, d.plan(ctx, look, records), records)
	return result, errors.Join(lookErr, err)
}

// look leaves out single sick GPUs: it is right for the others.
func (d *Divider) look(ctx context.Context) (gpu.Node, error) {
	look, err := d.Hardware.Look(ctx)
	if err != nil && !errors.Is(err, nvml.ErrSick) {
		return look, fmt.Errorf("looking at the GPUs: %w", err)
	}
	return look, nil
}

// idle is true where nothing is to be done and nothing to be recorded.
func idle(list []work, look gpu.Node, r records) bool {
	return !slices.ContainsFunc(list, func(w work) bool {
		unknown := slices.ContainsFunc(w.keep, func(p gpu.Placement) bool { return !r.made.Has(w.uuid, p) })
		return unknown || !w.nothing()
	}) && equality.Semantic.DeepEqual(left(look, r), r.made)
}

func foreign(list []work) map[string]string {
	found := map[string]string{}
	for _, w := range list {
		if w.foreign != "" && w.trouble.Reason == "" {
			found[w.uuid] = w.foreign
		}
	}
	return found
}

func troubles(list []work) map[string]publish.Trouble {
	found := map[string]publish.Trouble{}
	for _, w := range list {
		if w.trouble.Reason != "" {
			found[w.uuid] = w.trouble
		}
	}
	return found
}

// records are what the checkpoint says.
type records struct {
	claims    checkpoint.Claims
	published checkpoint.Published
	made      checkpoint.Made
}

func (d *Divider) read() (records, error) {
	var r records
	var err error
	if r.claims, err = d.Records.Claims(); err != nil {
		return r, fmt.Errorf("reading the prepared claims: %w", err)
	}
	if r.published, err = d.Records.Published(); err != nil {
		return r, fmt.Errorf("reading the published devices: %w", err)
	}
	if r.made, err = d.Records.Made(); err != nil {
		return r, fmt.Errorf("reading the instances of layouts: %w", err)
	}
	return r, nil
}

// plan decides for each GPU that is seen. Who holds it is asked where something would go; where that is not known, nothing
// goes.
func (d *Divider) plan(ctx context.Context, look gpu.Node, r records) []work {
	var list []work
	for _, g := range look.GPUs {
		offered := r.published.ByUUID(g.UUID)
		static := offered != nil && devices.Static(offered.Form)
		if !static && len(r.made.GPUs[g.UUID]) == 0 {
			continue
		}
		s := situation{gpu: g, leaving: !static, claims: r.claims, made: r.made}
		if static {
			s.wanted = devices.Wanted(offered.Form)
			for _, i := range offered.Instances {
				s.offered = append(s.offered, i.Placement.GPU())
			}
		}
		w := decide(s)
		if len(w.destroy) > 0 || w.turnOn {
			var err error
			if s.processes, err = d.Holders.On(ctx, g.UUID, r.claims); err == nil {
				w = decide(s)
			} else {
				w = work{uuid: g.UUID, trouble: trouble(err)}
			}
		}
		list = append(list, w)
	}
	return list
}

// carryOut records what is going to be done, does it on all GPUs at once, and records what has become of it.
func (d *Divider) carryOut(ctx context.Context, list []work, r records) (Result, error) {
	if err := d.announce(list, &r); err != nil {
		return Result{Troubles: troubles(list)}, err
	}
	changed := false
	var all sync.WaitGroup
	for i := range list {
		if list[i].nothing() {
			continue
		}
		changed = true
		all.Go(func() { list[i].trouble = d.bring(ctx, list[i], r.claims) })
	}
	all.Wait()
	return Result{Changed: changed, Troubles: troubles(list), Foreign: foreign(list)}, d.settle(context.WithoutCancel(ctx), r)
}

// announce records the instances that are going to be made, and the MIG modes that are going to be turned on.
func (d *Divider) announce(list []work, r *records) error {
	made := checkpoint.Made{Version: r.made.Version, GPUs: map[string][]checkpoint.Placement{}}
	for uuid, placements := range r.made.GPUs {
		made.GPUs[uuid] = slices.Clone(placements)
	}
	modes := false
	for _, w := range list {
		facts := factsOf(w.uuid, r.published)
		for _, p := range w.standing() {
			if !made.Has(w.uuid, p) {
				profile, _ := facts.Profile(p.Profile)
				made.GPUs[w.uuid] = append(made.GPUs[w.uuid], checkpoint.Placement{Profile: p.Profile, Start: p.Start, Size: profile.MemorySlices})
			}
		}
		if w.turnOn && !slices.Contains(r.claims.MIGModeFoundOff, w.uuid) {
			r.claims.MIGModeFoundOff = append(r.claims.MIGModeFoundOff, w.uuid)
			modes = true
		}
	}
	if modes {
		r.claims.BootID = d.BootID
		if err := d.Records.SaveClaims(r.claims); err != nil {
			return fmt.Errorf("recording which MIG modes are turned on: %w", err)
		}
	}
	if equality.Semantic.DeepEqual(made, r.made) {
		return nil
	}
	if err := d.Records.SaveMade(made); err != nil {
		return fmt.Errorf("recording which instances are made: %w", err)
	}
	r.made = made
	return nil
}

// factsOf are the GPU's as last seen.
func factsOf(uuid string, published checkpoint.Published) gpu.GPU {
	offered := published.ByUUID(uuid)
	if offered == nil {
		return gpu.GPU{}
	}
	return offered.Facts.GPU()
}

// settle forgets the instances that are neither there nor wanted.
func (d *Divider) settle(ctx context.Context, r records) error {
	look, err := d.look(ctx)
	if err != nil {
		return fmt.Errorf("looking at what became of the instances: %w", err)
	}
	made := left(look, r)
	if equality.Semantic.DeepEqual(made, r.made) {
		return nil
	}
	if err := d.Records.SaveMade(made); err != nil {
		return fmt.Errorf("recording which instances are left: %w", err)
	}
	return nil
}

// left is the record without the instances that are neither there nor wanted, and without the GPUs whose instances come and
// go with claims: those have nothing of a layout any more.
func left(look gpu.Node, r records) checkpoint.Made {
	made := checkpoint.Made{Version: r.made.Version, GPUs: map[string][]checkpoint.Placement{}}
	for uuid, placements := range r.made.GPUs {
		g := look.ByUUID(uuid)
		offered := r.published.ByUUID(uuid)
		if offered != nil && offered.Form.Partitioning == v1alpha1.PartitioningMIG && !devices.Static(offered.Form) {
			continue
		}
		kept := slices.DeleteFunc(slices.Clone(placements), func(p checkpoint.Placement) bool {
			wanted := offered != nil && slices.Contains(devices.Wanted(offered.Form), p.GPU())
			there := g == nil || slices.ContainsFunc(g.Instances, func(i gpu.Instance) bool { return placement(i) == p.GPU() })
			return !wanted && !there
		})
		if len(kept) > 0 {
			made.GPUs[uuid] = kept
		}
	}
	return made
}
