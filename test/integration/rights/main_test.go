// SPDX-License-Identifier: Apache-2.0

// Package rights tests what each part of Sluice may do, and may not, with the roles and policies of config/rbac.
package rights

import (
	"os"
	"testing"

	"github.com/sluice-gpu/sluice/test/framework/cluster"
)

var shared *cluster.Cluster

func TestMain(m *testing.M) { os.Exit(cluster.Main(m, &shared)) }
