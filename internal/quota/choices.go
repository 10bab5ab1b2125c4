// SPDX-License-Identifier: Apache-2.0

package quota

// Choices are, for each request, the pools that may serve it. A request that something unknown may serve as well is left
// out.
func (d Demand) Choices() [][]string {
	var choices [][]string
	for _, w := range d.wishes {
		if pools := w.pools(); len(pools) > 0 {
			choices = append(choices, pools)
		}
	}
	return choices
}

func (w wish) pools() []string {
	var pools []string
	for _, o := range w.options {
		if o.pool == "" {
			return nil
		}
		pools = append(pools, o.pool)
	}
	return pools
}
