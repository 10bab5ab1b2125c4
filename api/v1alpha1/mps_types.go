// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// NodeMPSServing is True when every device that claims share by MPS has its daemon, and every process on such a device is
// held by it; False also where GPUs are offered to be shared so and the node cannot do it. Always set by the node's agent.
const NodeMPSServing = "MPSServing"

// Reasons of MPSServing.
const (
	// ReasonMPSNotUsed: no claim of the node has a device that is shared by MPS.
	ReasonMPSNotUsed = "MPSNotUsed"
	// ReasonMPSServing: every daemon runs, and holds every process on its device.
	ReasonMPSServing = "MPSServing"
	// ReasonMPSProgramMissing: GPUs are offered to be shared by MPS, and the node has no program for its daemons.
	ReasonMPSProgramMissing = "MPSProgramMissing"
	// ReasonMPSDaemonAway: a daemon has ended by itself and could not be started again yet. Containers that start CUDA
	// now run without limits.
	ReasonMPSDaemonAway = "MPSDaemonAway"
	// ReasonMPSDaemonEnded: a daemon has ended by itself and was started again. Containers that were running then must
	// start again to be held by the new one; the message names them until they are gone.
	ReasonMPSDaemonEnded = "MPSDaemonEnded"
	// ReasonMPSBypassed: a process is on a device beside MPS and without a limit; the message names it.
	ReasonMPSBypassed = "MPSBypassed"
	// ReasonMPSFault: a process has broken the server that all clients of the device share. It takes new ones when those
	// that it had are gone.
	ReasonMPSFault = "MPSFault"
	// ReasonMPSFull: a server has as many clients as it takes; the next process gets error 808.
	ReasonMPSFull = "MPSFull"
)
