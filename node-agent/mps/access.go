// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"fmt"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	protocol2 = 2
	protocol3 = 3
	// driver3 is the first driver that has protocol 3.
	driver3 = 615
	// server is the one server of a daemon of protocol 3.
	server = "sluice"
)

// pipeDir is the name of the pipe directory among the files of a share in its container.
const pipeDir = "mps"

// Access is what the containers of a client need.
type Access struct {
	Env    []string
	Mounts []Mount
}

// Mount is a directory of the node at a path of the container.
type Mount struct {
	HostPath, ContainerPath string
	ReadOnly                bool
}

// Access says what the containers of a client need to reach the daemon that serves it. shareDir is where they find the
// files of its share.
func (d *Door) Access(c Client, shareDir string) (Access, error) {
	r, err := d.read(c.Device)
	if err != nil {
		return Access{}, err
	}
	inside := path.Join(shareDir, pipeDir)
	return Access{
		Env: environment(c, inside),
		Mounts: []Mount{
			// Clients only connect to what is in it; who could write there could remove the way in for all.
			{HostPath: d.clientPipe(r, c), ContainerPath: inside, ReadOnly: true},
			// Server and clients meet in files of /dev/shm. All clients of a device see the same ones.
			{HostPath: d.shm(c.Device), ContainerPath: "/dev/shm"},
		},
	}, nil
}

// environment is what makes a process a client with limits. The limits are set although a namespace of protocol 3 has them
// too: what a pod's author wrote into the variables is replaced. The one device that the daemon sees is number 0 whatever
// the node calls it; a limit that names a device which the daemon does not see would void all limits.
func environment(c Client, pipe string) []string {
	env := []string{
		"CUDA_MPS_PIPE_DIRECTORY=" + pipe,
		fmt.Sprintf("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=%dM", c.MemoryMiB),
	}
	if c.Percent == 0 {
		// Best effort: whatever the others leave idle.
		return append(env, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100", "CUDA_MPS_CLIENT_PRIORITY=1")
	}
	return append(env, fmt.Sprintf("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=%d", c.Percent), "CUDA_MPS_CLIENT_PRIORITY=0")
}

// clientPipe is the directory through which a client reaches the daemon, on the node. With protocol 3 it has the socket of
// the client's namespace alone, so that there is no way into another one.
func (d *Door) clientPipe(r record, c Client) string {
	if r.Protocol == protocol3 {
		return filepath.Join(d.pipe(c.Device), server, namespace(c))
	}
	return d.pipe(c.Device)
}

// namespace is the client's with protocol 3: lower-case letters, digits and underscores, at most 64.
func namespace(c Client) string {
	return strings.ReplaceAll(strings.ToLower(c.ClaimUID), "-", "_") + "_" + strconv.Itoa(c.Index)
}

// protocolOf is the newest protocol that may be used. Protocol 3 does not know MIG.
func protocolOf(c Client) int {
	major, _, _ := strings.Cut(c.Driver, ".")
	if number, err := strconv.Atoi(major); err == nil && number >= driver3 && strings.HasPrefix(c.Device, "GPU-") {
		return protocol3
	}
	return protocol2
}
