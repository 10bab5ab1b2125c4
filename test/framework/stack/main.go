// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Shared is what a package's tests have together.
type Shared struct {
	// Options are the stack's; Dir and Log are set by Main.
	Options Options
	// Timeout bounds the tests and the stack's start.
	Timeout time.Duration
	// Furnish, where there is one, makes what is to be there before the first test. The context ends with the last.
	Furnish func(ctx context.Context) error
}

// Main runs a package's tests on a stack that they share, which is there while they run, and says how the program is to exit. The
// logs of a run that failed stay.
func Main(m *testing.M, stack **Stack, o Shared) int {
	log.SetLogger(logr.Discard()) // the client's warnings are the tenants' to read
	code, err := onStack(m, stack, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func onStack(m *testing.M, stack **Stack, o Shared) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), o.Timeout)
	defer cancel()
	parent, err := os.MkdirTemp("", "sluice-it-")
	if err != nil {
		return 1, fmt.Errorf("making the stack's directory: %w", err)
	}
	defer func() {
		if code == 0 && err == nil {
			_ = os.RemoveAll(parent)
		}
	}()
	progress, err := os.Create(filepath.Join(parent, "lab.log"))
	if err != nil {
		return 1, fmt.Errorf("making the stack's log: %w", err)
	}
	defer func() { _ = progress.Close() }()
	o.Options.Dir, o.Options.Log = filepath.Join(parent, "lab"), progress
	if *stack, err = Up(ctx, o.Options); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, (*stack).Down(context.WithoutCancel(ctx))) }()
	if o.Furnish != nil {
		if err := o.Furnish(ctx); err != nil {
			return 1, err
		}
	}
	if code = m.Run(); code != 0 {
		keepLogs(parent)
	}
	return code, nil
}

// keepLogs copies the logs of a failed run beside the lab, which takes its own away.
func keepLogs(parent string) {
	dst := filepath.Join(parent, "logs")
	if err := os.CopyFS(dst, os.DirFS(filepath.Join(parent, "lab", "logs"))); err != nil {
		fmt.Fprintln(os.Stderr, "keeping the logs:", err)
		return
	}
	fmt.Fprintln(os.Stderr, "logs of the failed run are in", dst)
}
