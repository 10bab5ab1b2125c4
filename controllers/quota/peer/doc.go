// SPDX-License-Identifier: Apache-2.0

// Package peer lets one replica write the ledgers for all: the leader publishes its address, and the others send it what
// they have to charge. Both sides prove who they are with the certificate of the webhook. When the leader does not
// answer, a replica writes by itself: that is slower, and as right.
package peer
