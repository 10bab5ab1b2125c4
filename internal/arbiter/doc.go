// SPDX-License-Identifier: Apache-2.0

// Package arbiter decides whose turn it is on the GPUs of a node. It is the decision alone: what the processes of shares say
// comes in as reports, what is to be done with their gates goes out as actions, and the time is told to it. Nothing in it
// reads a clock, a file or a gate.
//
// The tenants of a GPU run one after another, in slices. A tenant's turn is decided by start-time fair queueing: each has a
// virtual time, which goes forward by what it used divided by its share; the one that is furthest behind is next. A tenant
// with a cap also needs tokens, which come in at the rate of its share. The gates of a tenant on several GPUs open and close
// together.
package arbiter
