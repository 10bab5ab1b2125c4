// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Shared is what a package's tests have together.
type Shared struct {
	// Timeout bounds the tests and the lab's start.
	Timeout time.Duration
	// Furnish makes what is to be there before the first test.
	Furnish func(ctx context.Context, l *Lab) error
}

// Main runs a package's tests on a lab that they share, which is there while they run, and says how the program is to exit. The
// logs of a run that failed stay.
func Main(m *testing.M, lab **Lab, o Shared) int {
	kept := flag.String("lab", "", "directory of a lab that stands, or comes to stand there, and stays; empty: one for this run alone")
	flag.Parse()                  //nolint:revive // it is what a TestMain calls, and the tests begin after it
	log.SetLogger(logr.Discard()) // the client's warnings are the tenants' to read
	run := onLab
	if *kept != "" {
		run = func(m *testing.M, lab **Lab, o Shared) (int, error) { return onKeptLab(m, lab, o, *kept) }
	}
	code, err := run(m, lab, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func onLab(m *testing.M, lab **Lab, o Shared) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), o.Timeout)
	defer cancel()
	// Not below the usual directory for temporary files where that is long: a socket's path has 107 bytes.
	parent, err := os.MkdirTemp("/tmp", "sluice-e2e-")
	if err != nil {
		return 1, fmt.Errorf("making the lab's directory: %w", err)
	}
	defer func() {
		if code == 0 && err == nil {
			_ = os.RemoveAll(parent)
		}
	}()
	progress, err := os.Create(filepath.Join(parent, "lab.log"))
	if err != nil {
		return 1, fmt.Errorf("making the lab's log: %w", err)
	}
	defer func() { _ = progress.Close() }()
	if *lab, err = Up(ctx, filepath.Join(parent, "lab"), progress); err != nil {
		return 1, err
	}
	defer func() {
		if code != 0 || err != nil {
			keepLogs(*lab, parent)
		}
		err = errors.Join(err, (*lab).Down(context.WithoutCancel(ctx)))
	}()
	if err := o.Furnish(ctx, *lab); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// onKeptLab is onLab on a lab that stays, so that a test can be run again and again.
func onKeptLab(m *testing.M, lab **Lab, o Shared, dir string) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), o.Timeout)
	defer cancel()
	if _, err := os.Stat(filepath.Join(dir, "state.json")); err == nil {
		if *lab, err = At(dir, io.Discard); err != nil {
			return 1, err
		}
		return m.Run(), nil
	}
	var err error
	if *lab, err = Up(ctx, dir, io.Discard); err != nil {
		return 1, err
	}
	if err := o.Furnish(ctx, *lab); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// keepLogs copies the logs of a failed run's machines beside the lab, which takes them away.
func keepLogs(l *Lab, parent string) {
	machines, _ := filepath.Glob(filepath.Join(l.Dir, "machines", "*"))
	for _, dir := range machines {
		for _, logs := range []string{"logs", "log"} {
			dst := filepath.Join(parent, "machines", filepath.Base(dir), logs)
			if err := os.CopyFS(dst, os.DirFS(filepath.Join(dir, logs))); err != nil {
				fmt.Fprintln(os.Stderr, "keeping the logs:", err)
			}
		}
	}
	fmt.Fprintln(os.Stderr, "logs of the failed run are in", parent)
}
