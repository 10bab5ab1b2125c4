// SPDX-License-Identifier: Apache-2.0

// Package health tests what becomes of GPUs that fall ill and get well again, where that happens: on a real control plane, with the
// real manager and the real agents over fake GPUs. Each test has a node and a pool of its own.
package health

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// drainSettle is short here: on an idle lab an allocation is never on its way for long.
const drainSettle = 2 * time.Second

var cluster *stack.Stack

func TestMain(m *testing.M) {
	flag.Parse()
	log.SetLogger(logr.Discard()) // the client's warnings are the tenants' to read
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	parent, err := os.MkdirTemp("", "sluice-it-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if code == 0 {
			_ = os.RemoveAll(parent)
		}
	}()
	progress, err := os.Create(filepath.Join(parent, "lab.log"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = progress.Close() }()
	cluster, err = stack.Up(ctx, stack.Options{
		Dir: filepath.Join(parent, "lab"), Log: progress, ManagerArgs: []string{"--drain-settle=" + drainSettle.String()},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code = m.Run()
	if code != 0 {
		keepLogs(parent)
	}
	if err := cluster.Down(context.WithoutCancel(ctx)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
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
