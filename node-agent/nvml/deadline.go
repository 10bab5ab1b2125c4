// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"errors"
	"fmt"
	"time"
)

// DefaultDeadline is how long a call may take. Making an instance takes about a second, and a GPU that nothing has used for
// a while some seconds to wake.
const DefaultDeadline = 20 * time.Second

// ErrHangs says that a call does not return. It cannot be taken back: what it was about is left alone until it does.
var ErrHangs = errors.New("NVML does not return from a call")

// WithDeadline bounds each call with another time than DefaultDeadline.
func WithDeadline(deadline time.Duration) Option {
	return func(d *Door) { d.deadline = deadline }
}

// all is the key of calls that concern no single GPU, closing that of the last one.
const all, closing = "", "closing"

// bounded runs calls about one thing, and stops waiting for them at the deadline. They go on in the background; until they
// have returned, further calls about the same thing are refused at once instead of piling up behind them. After an error
// nothing that the calls would have set may be read. What the calls hold is released when they have returned.
func (d *Door) bounded(key string, deadline time.Duration, release func(), calls func() error) error {
	if d.hangs(key) {
		release()
		return hung(key)
	}
	done := make(chan error, 1)
	go func() {
		err := calls()
		release()
		done <- err
	}()
	timer := time.NewTimer(deadline)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
	}
	d.overdue(key, 1)
	go func() {
		<-done
		d.overdue(key, -1)
	}()
	return hung(key)
}

func hung(key string) error {
	if key == all {
		return ErrHangs
	}
	return fmt.Errorf("%s: %w", key, ErrHangs)
}

// hangs is true while a call about the thing is past its deadline.
func (d *Door) hangs(key string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.hanging[key] > 0
}

func (d *Door) overdue(key string, change int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hanging[key] += change
}
