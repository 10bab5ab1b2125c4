// SPDX-License-Identifier: Apache-2.0

// Package quota measures what holding quotas costs, and holds them in storms that are too long for a test. Everything
// runs through two replicas of the manager on a control plane of its own; nodes are on paper.
package quota
