// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// lineCounter counts the lines written to it, which with go build -v is the packages compiled, and keeps the last ones.
type lineCounter struct {
	mu    sync.Mutex
	lines int
	last  string
}

func (c *lineCounter) Write(p []byte) (int, error) {
	const keep = 8 << 10
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines += strings.Count(string(p), "\n")
	c.last += string(p)
	if excess := len(c.last) - keep; excess > 0 {
		c.last = c.last[excess:]
	}
	return len(p), nil
}

func (c *lineCounter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lines
}

func (c *lineCounter) tail() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// ticker writes a line at a steady pace until it is stopped.
type ticker struct {
	begin time.Time
	quit  chan struct{}
	done  sync.WaitGroup
}

func newTicker(out io.Writer, every time.Duration, line func(took time.Duration) string) *ticker {
	t := &ticker{begin: time.Now(), quit: make(chan struct{})}
	t.done.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				fmt.Fprintln(out, line(t.took()))
			case <-t.quit:
				return
			}
		}
	})
	return t
}

func (t *ticker) took() time.Duration { return time.Since(t.begin).Round(time.Second) }

func (t *ticker) stop() time.Duration {
	close(t.quit)
	t.done.Wait()
	return t.took()
}
