// SPDX-License-Identifier: Apache-2.0

package arbiter

import "math"

// Time is a moment or a length of time in nanoseconds; moments are of CLOCK_MONOTONIC.
type Time int64

// Forever is later than every other moment.
const Forever Time = math.MaxInt64

const (
	microsecond Time = 1000
	millisecond      = 1000 * microsecond
)

const (
	// longSlice is a slice while others want the GPU, without its drain; shortSlice is the least that is worth a switch.
	longSlice  = 22 * millisecond
	shortSlice = 2 * millisecond
	// round makes the slices of tiny shares: it is their share of this. Who wants the GPU is to have a slice in each second,
	// and turns do not come evenly.
	round = 650 * millisecond
	// capRound is how often a tenant with a cap gets what it has earned, capSlice the least that is given at once.
	capRound = 50 * millisecond
	capSlice = 5 * millisecond
	// remembered is how long a tenant that wanted the GPU counts as a rival.
	remembered = 100 * millisecond
	// margin is how long before its end a slice is prolonged.
	margin = 2 * millisecond
	// patience is how long a drain, or a first launch, may take before somebody looks.
	patience = 2 * millisecond
	// closingTime is what the processes of a gang have to say how much they launched.
	closingTime = 300 * microsecond
	// lifeCheck is the time between two questions whether the processes of a share live.
	lifeCheck = 250 * millisecond
	// unmeasured is what a slice may lose between its opening and its first kernel, and between its last and the look that finds it
	// done.
	unmeasured = 300 * microsecond
	// coaxEvery is the time between two looks whether the processes of a gang that overruns wait for each other.
	coaxEvery = 10 * millisecond
	// absenceMin and absenceMax bound how long a tenant of which nobody comes is given no slice.
	absenceMin = 50 * millisecond
	absenceMax = 1000 * millisecond
	// switchCost is what others lose where a tenant ends their slice.
	switchCost = 500 * microsecond
	// long is the time after which what a tenant did alone is settled, so that it weighs nothing against others.
	long = 50 * millisecond
)

const (
	// WholeGPU is a share of all of a GPU.
	WholeGPU = 10000
	// bestEffort is what all tenants of a GPU without a share weigh together.
	bestEffort = 100
)

// Gate names a gate, which is one share's. A number is used again after its share was removed.
type Gate int

// Share is what the decision needs to know of a share.
type Share struct {
	// Tenant is whose the share is. All shares of a tenant open and close together.
	Tenant string
	// Device names the device of which it is a share.
	Device [16]byte
	// Compute is in hundredths of a percent; 0 is best effort.
	Compute uint32
	// Capped says that it is never given more.
	Capped bool
}

// Report is what the processes of a share say.
type Report struct {
	// Wants says that a process waits at the gate; Again that it does after it was done with the slice that is open.
	Wants, Again bool
	// Ran says that a process launched something in the present or last slice; Running that one has not drained.
	Ran, Running bool
	// Launches is the most that one running process has launched in the slice, Waiting that one which is drained and waits at the
	// gate has.
	Launches, Waiting uint32
	// GPUTime is the sum of the GPU time that was measured.
	GPUTime uint64
	// Live says that only living processes count in this report.
	Live bool
}

// Verb is what is to be done with a gate.
type Verb uint8

// The verbs.
const (
	// Open opens the gate with a new sequence.
	Open Verb = iota + 1
	// Reopen does so within a slice, for a process that was done with the last sequence and wants again.
	Reopen
	// Prolong changes until when an open gate is open, and whether others want the GPU.
	Prolong
	// Close ends the slice before its time.
	Close
	// Shut says that the slice is over and drained.
	Shut
	// Overrun says that the slice did not drain in time.
	Overrun
	// Finish lets processes complete launches in a slice that is over.
	Finish
	// Look reads what the processes say, and reports it.
	Look
)

// Action is one thing to be done.
type Action struct {
	Verb Verb
	Gate Gate
	// Until is of Open, Reopen and Prolong.
	Until Time
	// Contended is of the same: others want the GPU.
	Contended bool
	// Launches is of Finish.
	Launches uint32
	// Live is of Look: the processes must be asked for their lives.
	Live bool
}

// Snapshot is what the tenant of a share has had so far. All shares of one open and close together.
type Snapshot struct {
	// Slices were opened, Overruns of them did not drain in time.
	Slices, Overruns uint64
	// Charged is the GPU time that counted as used.
	Charged Time
	// Waited is how long it wanted the GPU and did not have it.
	Waited Time
	// State is what the gate does.
	State State
	// Wants says that a process waits.
	Wants bool
}

// State is what a tenant's gates do.
type State uint8

// The states.
const (
	// Closed gates let nothing pass, and nothing runs.
	Closed State = iota
	// Opened gates let pass.
	Opened
	// Draining gates let nothing pass; what was launched still runs.
	Draining
	// Overrunning gates are those whose slice did not drain in time. Others go on beside.
	Overrunning
)
