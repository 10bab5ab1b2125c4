// SPDX-License-Identifier: Apache-2.0

package nvml

// Closing is true while Close, which has returned already, still waits for calls that hang.
func (d *Door) Closing() bool { return d.hangs(closing) }
