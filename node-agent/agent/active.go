// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
)

// activeFile is locked by the active agent of the node. Two agents overlap while one replaces the other; both serve
// kubelet, but slices and status have one writer.
const activeFile = "active.lock"

const activeRetry = time.Second

// BecomeActive waits until no other agent of the node is active. The role ends when the returned function is called, or
// with the process.
func BecomeActive(ctx context.Context, stateDir string, c clock.Clock, log logr.Logger) (resign func(), err error) {
	for told := false; ; told = true {
		resign, err := tryActive(stateDir)
		if err != nil || resign != nil {
			return resign, err
		}
		if !told {
			log.Info("Waiting for the node's active agent to end", "lock", filepath.Join(stateDir, activeFile))
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for the active agent to end: %w", context.Cause(ctx))
		case <-c.After(activeRetry):
		}
	}
}

// tryActive takes the role where no other agent has it; resign is nil where one has.
func tryActive(stateDir string) (resign func(), err error) {
	path := filepath.Join(stateDir, activeFile)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock of the active agent: %w", err)
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return func() { _ = file.Close() }, nil
	}
	_ = file.Close()
	if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return nil, nil
}
