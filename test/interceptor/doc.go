// SPDX-License-Identifier: Apache-2.0

// Package interceptor holds the tests of libsluice.so in processes of their own, on the fake GPU: each way to hold device
// memory by a small program, natively and under the library, with what the process is told, what the share's ledger says and
// what NVML sees from outside held against each other.
package interceptor
