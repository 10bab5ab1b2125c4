// SPDX-License-Identifier: Apache-2.0

// Package request turns what a tenant wrote in a pod's limits into a claim. It parses the pod, chooses the pool, decides
// which devices may serve each container, and encodes the result as a canonical request, from which alone the
// ResourceClaimTemplate is made. Everything a tenant reads when a pod is refused is written here.
package request
