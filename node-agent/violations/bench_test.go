// SPDX-License-Identifier: Apache-2.0

package violations_test

import (
	"fmt"
	"testing"
)

// BenchmarkLook looks at a node of 4,000 processes with 64 shares, of each of which one process is on the GPU.
func BenchmarkLook(b *testing.B) {
	var claims []string
	for i := range 64 {
		claims = append(claims, fmt.Sprintf("claim-%02d", i))
	}
	n := newNode(b, claims...)
	for i := range 4000 {
		p := process{pid: 100 + i, bytes: gibi, idle: i >= len(claims), library: true}
		if i < len(claims) {
			p.mounts = claims[i : i+1]
		}
		n.start(p)
	}
	n.look(2)
	for b.Loop() {
		n.look(1)
	}
}
