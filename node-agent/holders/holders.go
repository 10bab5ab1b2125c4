// SPDX-License-Identifier: Apache-2.0

// Package holders says who holds a GPU, in names that people know: a process by its command, a tenant's process by the
// pod that it belongs to.
package holders

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/nvml"
	"github.com/sluice-gpu/sluice/node-agent/procs"
)

// Hardware is the NVML door.
type Hardware interface {
	Holders(ctx context.Context, gpuUUID string) ([]nvml.Holder, error)
}

// Finder finds who holds a GPU. What it reads of processes needs their PIDs on the node, and so hostPID.
type Finder struct {
	Hardware Hardware
	// Proc is where the node's procfs is mounted.
	Proc string
}

// Process is one that has a context on a GPU or on an instance of it.
type Process struct {
	PID int
	// GIID is the GPU instance's id; -1 on a whole GPU.
	GIID int
	// Name is the command and the PID.
	Name string
	// Tenant is true where the process belongs to a pod whose claim has something of the GPU.
	Tenant bool
}

// On are the processes on a GPU.
func (f *Finder) On(ctx context.Context, gpuUUID string, recorded checkpoint.Claims) ([]Process, error) {
	found, err := f.Hardware.Holders(ctx, gpuUUID)
	if err != nil {
		return nil, err //nolint:wrapcheck // the door's errors say what was being done
	}
	pods, complete := podsOn(gpuUUID, recorded)
	processes := make([]Process, 0, len(found))
	for _, h := range found {
		processes = append(processes, Process{
			PID: h.PID, GIID: h.GIID, Name: procs.Name(f.Proc, h.PID), Tenant: f.tenant(h.PID, pods, complete),
		})
	}
	return processes, nil
}

// podsOn are the UIDs of the pods whose claims have something of a GPU; incomplete where a record does not say which.
func podsOn(gpuUUID string, recorded checkpoint.Claims) (uids []string, complete bool) {
	complete = true
	for _, claim := range recorded.Claims {
		if !slices.Contains(claim.GPUs(), gpuUUID) {
			continue
		}
		for _, pod := range claim.Pods {
			uids = append(uids, pod.UID)
		}
		complete = complete && len(claim.Pods) > 0
	}
	return uids, complete
}

// tenant is true where the process's cgroup is that of one of the pods. Where it is not known which pods they are, any
// pod's will do.
func (f *Finder) tenant(pid int, pods []string, complete bool) bool {
	data, err := os.ReadFile(filepath.Join(f.Proc, strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return false
	}
	// The systemd driver of kubelet writes UIDs with underscores.
	cgroup := strings.ReplaceAll(string(data), "_", "-")
	if !complete && strings.Contains(cgroup, "kubepods") {
		return true
	}
	return slices.ContainsFunc(pods, func(uid string) bool { return uid != "" && strings.Contains(cgroup, uid) })
}
