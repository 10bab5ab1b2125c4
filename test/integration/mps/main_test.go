// SPDX-License-Identifier: Apache-2.0

// Package mps tests pools whose claims share GPUs by MPS, where that happens: on a real control plane, with the real manager and
// the real agents over fake GPUs and a fake MPS. Each test has a namespace, a node and a pool of its own.
package mps

import (
	"os"
	"testing"
	"time"

	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// drainSettle is short here: on an idle lab an allocation is never on its way for long.
const drainSettle = 2 * time.Second

var cluster *stack.Stack

func TestMain(m *testing.M) {
	os.Exit(stack.Main(m, &cluster, stack.Shared{
		Timeout: 15 * time.Minute, Options: stack.Options{ManagerArgs: []string{"--drain-settle=" + drainSettle.String()}},
	}))
}
