// SPDX-License-Identifier: Apache-2.0

// Package admission is the webhook that turns a pod's sluice.dev/* limits into a claim. It writes nothing to the cluster:
// it points the pod at a template whose name is the hash of the request, and package template makes that template.
package admission
