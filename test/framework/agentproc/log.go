// SPDX-License-Identifier: Apache-2.0

package agentproc

import (
	"bytes"
	"sync"
)

// logBuffer is what an agent has said so far; it can be read while the agent goes on talking.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
