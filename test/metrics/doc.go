// SPDX-License-Identifier: Apache-2.0

// Package metrics holds the list of metrics in docs/metrics.md, the dashboard and the rules together with the code.
package metrics
