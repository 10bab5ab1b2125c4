// SPDX-License-Identifier: Apache-2.0

// Package lab holds what the lab is built from: its own module files and the multi-call cluster binary's source. They are
// embedded, so that the lab command works from anywhere and its cache is keyed by exactly what it would build.
package lab

import "embed"

// Source is the module that the cluster binary is built from.
//
//go:embed go.mod go.sum cmd/cluster/main.go
var Source embed.FS

// Pause is the source of the program that holds a pod's namespaces. It needs no module.
//
//go:embed cmd/pause/main.go
var Pause []byte

// ClusterPackage is the multi-call binary's package, relative to the module root.
const ClusterPackage = "./cmd/cluster"

// ClusterTag is the build tag that the package needs.
const ClusterTag = "cluster"
