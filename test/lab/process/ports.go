// SPDX-License-Identifier: Apache-2.0

package process

import (
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"net"
)

// FreePorts finds n loopback ports that nobody listens on. They are drawn at random from below the range that the kernel
// hands to outgoing connections: a stopped component must find its port free again when it is started.
func FreePorts(n int) ([]int, error) {
	const lowest, count, attempts = 20000, 12000, 500
	ports := make([]int, 0, n)
	seen := map[int]bool{}
	for range attempts {
		if len(ports) == n {
			return ports, nil
		}
		drawn, err := rand.Int(rand.Reader, big.NewInt(count))
		if err != nil {
			return nil, fmt.Errorf("drawing a port: %w", err)
		}
		port := lowest + int(drawn.Int64())
		if seen[port] {
			continue
		}
		seen[port] = true
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		if err := listener.Close(); err != nil {
			return nil, fmt.Errorf("releasing port %d: %w", port, err)
		}
		ports = append(ports, port)
	}
	if len(ports) == n {
		return ports, nil
	}
	return nil, errors.New("no free loopback ports between 20000 and 32000")
}
