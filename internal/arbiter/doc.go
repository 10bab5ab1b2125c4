// SPDX-License-Identifier: Apache-2.0

// Package arbiter decides whose turn it is on the GPUs of a node. It is the decision alone: what the processes of shares say
// comes in as reports, what is to be done with their gates goes out as actions, and the time is told to it. Nothing in it
// reads a clock, a file or a gate.
//
// The tenants of a GPU run one after another, in slices. Each has a virtual time, which goes forward by what it used divided
// by its share; the mean of those who want the GPU, by weight, is the GPU's. Of the tenants that are not ahead of it, the next
// is the one that should have had its slice first: a large share is served often and a small one in time, however long their
// slices are. One that begins to want the GPU may be behind by one slice, whatever it did not use before, and ends the slice of
// one that is further ahead. A tenant with a cap also needs tokens, which come in at the rate of its share. The gates of a
// tenant on several GPUs open and close together.
package arbiter
