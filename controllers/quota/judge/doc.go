// SPDX-License-Identifier: Apache-2.0

// Package judge is the webhooks that hold quotas. One allows or refuses each allocation of a device of Sluice, at the
// moment it is about to be stored: nothing gets past it, whatever form the request took. Another keeps quotas from being
// deleted while they hold something.
package judge
