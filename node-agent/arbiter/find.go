// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"

	"github.com/sluice-gpu/sluice/node-agent/limits"
)

// finder finds the shares, those of another agent of the node included, and those that are gone.
type finder struct {
	shares Shares
	post   func(change)
	log    logr.Logger
	// inotify is nil where the kernel has none left.
	inotify *os.File
	kick    chan struct{}

	mu    sync.Mutex
	known map[limits.Found]*limits.Turn
}

// looks are the times after something has changed at which it is looked: the files of a share are made one after another,
// and its page is complete last.
func looks() []time.Duration {
	return []time.Duration{
		2 * time.Millisecond, 10 * time.Millisecond, 30 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond,
		time.Second, 3 * time.Second,
	}
}

func newFinder(shares Shares, post func(change), log logr.Logger) *finder {
	f := &finder{shares: shares, post: post, log: log, kick: make(chan struct{}, 1), known: map[limits.Found]*limits.Turn{}}
	err := f.listen()
	if err != nil {
		log.Info("Shares are looked for every second: the share directory cannot be watched", "reason", err.Error())
	}
	return f
}

// listen has the kernel tell of changes in the share directory.
func (f *finder) listen() error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("making the arbiter's inotify: %w", err)
	}
	file := os.NewFile(uintptr(fd), "inotify")
	const events = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_ONLYDIR
	if _, err := unix.InotifyAddWatch(fd, f.shares.Root(), events); err != nil {
		return errors.Join(fmt.Errorf("watching the share directory: %w", err), file.Close())
	}
	f.inotify = file
	return nil
}

func (f *finder) close() error {
	if f.inotify == nil {
		return nil
	}
	if err := f.inotify.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("closing the arbiter's inotify: %w", err)
	}
	return nil
}

// soon has it looked again. It never blocks.
func (f *finder) soon() {
	select {
	case f.kick <- struct{}{}:
	default:
	}
}

// run looks whenever something has changed, and sleeps without a timer otherwise.
func (f *finder) run(ctx context.Context) {
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(f.watch)
	defer f.close() //nolint:errcheck // it ends the watch
	var again <-chan time.Time
	if f.inotify == nil {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		again = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.kick:
		case <-again:
		}
		if !f.chase(ctx) {
			return
		}
	}
}

// watch hears that something changes in the share directory. What it is, looking tells.
func (f *finder) watch() {
	buffer := make([]byte, 4096)
	for f.inotify != nil {
		if _, err := f.inotify.Read(buffer); err != nil {
			return
		}
		f.soon()
	}
}

// chase looks at growing distances, from the beginning where something changes meanwhile; false where the context ends.
func (f *finder) chase(ctx context.Context) bool {
	start := time.Now()
	for i := 0; i < len(looks()); {
		timer := time.NewTimer(looks()[i] - time.Since(start))
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-f.kick:
			timer.Stop()
			if i > 0 {
				start, i = time.Now(), 0
			}
			continue
		case <-timer.C:
		}
		i++
		if err := f.find(); err != nil {
			f.log.Error(err, "Not every share could be found; it is tried again")
		}
	}
	return true
}

// find looks once at what shares there are.
func (f *finder) find() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	found, err := f.shares.Find()
	if err != nil {
		return fmt.Errorf("looking for shares: %w", err)
	}
	there := map[limits.Found]bool{}
	for _, share := range found {
		there[share] = true
	}
	for share, turn := range f.known {
		if !there[share] {
			delete(f.known, share)
			f.post(change{remove: turn})
		}
	}
	var failed []error
	for _, share := range found {
		if share.Inode == 0 || f.known[share] != nil {
			continue
		}
		turn, err := f.shares.Turn(share.ClaimUID, share.Index)
		if errors.Is(err, limits.ErrNoShare) {
			continue
		}
		if err != nil {
			failed = append(failed, err)
			continue
		}
		if turn.Inode() != share.Inode {
			failed = append(failed, turn.Close())
			continue
		}
		f.known[share] = turn
		f.post(change{add: turn})
	}
	return errors.Join(failed...)
}
