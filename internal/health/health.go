// SPDX-License-Identifier: Apache-2.0

// Package health decides how a GPU is from what is seen of it over time: the driver's error reports, its counters, and
// whether it answers. It is pure: times go in, and a verdict comes out.
//
// A GPU is Lost only where the hardware does not answer any more, since that ends what runs on it. Whatever else is wrong
// makes it Suspect: it takes nothing new. Every reason has an end that is seen without anybody's help.
package health

import (
	"time"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// Reach says whether a GPU answers.
type Reach int

const (
	// Answers: calls about the GPU return.
	Answers Reach = iota
	// Hangs: a call about the GPU does not return.
	Hangs
	// Gone: the driver says that the GPU is lost, or does not show it any more.
	Gone
)

// Recovery is what the driver wants done about a GPU.
type Recovery int

const (
	// RecoveryUnknown: the driver is too old to say.
	RecoveryUnknown Recovery = iota
	// RecoveryNone: nothing.
	RecoveryNone
	// RecoveryReset: a reset of the GPU.
	RecoveryReset
	// RecoveryReboot: a reboot of the node.
	RecoveryReboot
	// RecoveryDrain: its traffic to other GPUs has to end.
	RecoveryDrain
	// RecoveryIMEX: the domain of nodes that share memory has to be set up again.
	RecoveryIMEX
)

// asks is true where something is to be done.
func (r Recovery) asks() bool { return r > RecoveryNone }

// Vitals are what the driver says of a GPU that answers.
type Vitals struct {
	Recovery Recovery
	// Remaps is true where the board replaces bad memory rows. RemapPending: at the next reset it will; RemapFailed: it
	// has no spare rows left.
	Remaps, RemapPending, RemapFailed bool
	// Uncorrected counts the memory errors since the last reset that could not be corrected.
	Uncorrected uint64
	// ThermalBrake and PowerBrake: the hardware slows the GPU down now.
	ThermalBrake, PowerBrake bool
}

// Rules are the times that decisions need.
type Rules struct {
	// Quiet is how long a GPU stays suspect after an error of its hardware where the driver wants nothing done about it.
	// With each further error it doubles, up to QuietMost. QuietUnsure is the time where the driver does not say.
	Quiet, QuietUnsure, QuietMost time.Duration
	// Burst is how long the reports of one error come: a link that fails is reported by every port of it.
	Burst time.Duration
	// LostAfter is how long a GPU must be gone to be lost: being reset, it is gone for a while.
	LostAfter time.Duration
	// ForgetAfter is how long a GPU must be lost to be withdrawn where nobody has it.
	ForgetAfter time.Duration
	// LastingBrake is how long a GPU is slowed down before it takes nothing new.
	LastingBrake time.Duration
}

// DefaultRules are those of a node in production.
func DefaultRules() Rules {
	return Rules{
		Quiet: time.Minute, QuietUnsure: 10 * time.Minute, QuietMost: time.Hour, Burst: 10 * time.Second,
		LostAfter: 30 * time.Second, ForgetAfter: 5 * time.Minute, LastingBrake: 5 * time.Minute,
	}
}

// Course is what has been seen of one GPU so far. The zero Course is of a GPU that answers and of which nothing is known.
type Course struct {
	reach      Reach
	reachSince time.Time
	vitals     Vitals
	known      bool // the vitals have been read
	brakeSince time.Time

	// The last error of the hardware, and how many came soon after one another; those of a burst, which began with the one
	// at countedAt, are one.
	xid       uint64 // 0: memory errors that were counted
	errorAt   time.Time
	errors    int
	countedAt time.Time
	// asked is true where the driver has wanted something done since the last error.
	asked bool
	// wasLost is true of a GPU that was lost before the agent was started, until it answers.
	wasLost bool
}

// Reached notes whether the GPU answers. One that comes back from being gone was reset, or its node was: what was known
// against it is over, and what stays shows in its vitals.
func (c Course) Reached(r Reach, now time.Time) Course {
	if r == c.reach {
		return c
	}
	if c.reach == Gone && r == Answers {
		return Course{reachSince: now}
	}
	if c.reach != Gone || r != Hangs { // one that is gone does not get better by hanging
		c.reach, c.reachSince = r, now
	}
	return c
}

// Reported notes an XID.
func (c Course) Reported(number uint64, now time.Time, rules Rules) Course {
	if class := ClassOf(number); class == Application || class == Notice {
		return c
	}
	return c.failed(number, now, rules)
}

func (c Course) failed(number uint64, now time.Time, rules Rules) Course {
	if c.errors > 0 && now.Sub(c.errorAt) > rules.QuietMost {
		c.errors = 0
	}
	c.xid, c.errorAt, c.asked = number, now, false
	if c.errors == 0 || now.Sub(c.countedAt) >= rules.Burst {
		c.errors, c.countedAt = c.errors+1, now
	}
	return c
}

// Read notes vitals.
func (c Course) Read(v Vitals, now time.Time, rules Rules) Course {
	braked := v.ThermalBrake || v.PowerBrake
	if braked && c.brakeSince.IsZero() {
		c.brakeSince = now
	}
	if !braked {
		c.brakeSince = time.Time{}
	}
	if c.known && v.Uncorrected > c.vitals.Uncorrected && !c.suffers(now, rules) {
		c = c.failed(0, now, rules)
	}
	if v.Recovery.asks() {
		c.asked = true
	}
	if c.asked && v.Recovery == RecoveryNone {
		c.asked, c.errors = false, 0
	}
	c.vitals, c.known = v, true
	return c
}

// suffers is true while the last error counts.
func (c Course) suffers(now time.Time, rules Rules) bool {
	if c.errors == 0 {
		return false
	}
	quiet := rules.Quiet
	if c.vitals.Recovery == RecoveryUnknown {
		quiet = rules.QuietUnsure
	}
	for n := 1; n < c.errors && quiet < rules.QuietMost; n++ {
		quiet *= 2
	}
	return now.Sub(c.errorAt) < min(quiet, rules.QuietMost)
}

// Resume is the course of a GPU after a restart of the agent, from the verdict that was reported. A GPU that was lost stays lost
// until a look shows it; what else shows in vitals and reach is seen again anyway.
func Resume(before v1alpha1.GPUHealth) Course {
	if before.Since == nil {
		return Course{}
	}
	since := before.Since.Time
	failed := Course{xid: uint64(before.XID), errorAt: since, errors: 1, countedAt: since}
	switch {
	case before.State == v1alpha1.HealthLost && before.XID != 0:
		failed.reach, failed.reachSince, failed.wasLost = Gone, since, true
		return failed
	case before.State == v1alpha1.HealthLost:
		return Course{reach: Gone, reachSince: since, wasLost: true}
	case before.State == v1alpha1.HealthSuspect && (before.Reason == v1alpha1.HealthReasonXID || before.Reason == v1alpha1.HealthReasonECC):
		return failed
	default:
		return Course{}
	}
}
