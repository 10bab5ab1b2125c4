// SPDX-License-Identifier: Apache-2.0

// Package mainjob tests Sluice's main job where it happens: on a real control plane, with the real manager and the real
// agents over fake GPUs. Each test has pools and nodes of its own, so that none sees another's tenants.
package mainjob

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
