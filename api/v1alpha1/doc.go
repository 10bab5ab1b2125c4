// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the API of Sluice, group sluice.dev: what platform teams declare (GPUPool, GPUQuota) and the
// hand-over between the manager and each node's agent (GPUNode).
//
// Intent lives in the spec of GPUPool and GPUQuota, which Sluice never writes. The decision for one node lives in
// GPUNode.spec, written only by the manager; the fact lives in GPUNode.status, written only by that node's agent.
//
// +kubebuilder:object:generate=true
// +groupName=sluice.dev
package v1alpha1
