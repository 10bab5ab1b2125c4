// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
)

func TestDirectoriesOfRunningTenants(t *testing.T) {
	const claim = "11111111-2222-3333-4444-555555555555"
	shares, state, elsewhere := t.TempDir(), t.TempDir(), t.TempDir()
	check := func(state, shares string) error {
		t.Helper()
		records, err := checkpoint.Open(state)
		if err != nil {
			t.Fatal(err)
		}
		return checkDirs(Config{StateDir: state, ShareDir: shares}, records)
	}
	if err := check(state, shares); err != nil {
		t.Fatal(err)
	}
	records, err := checkpoint.Open(state)
	if err != nil {
		t.Fatal(err)
	}
	held := checkpoint.Claims{Claims: map[string]checkpoint.Claim{claim: {UID: claim, Namespace: "n", Name: "c", State: checkpoint.Prepared}}}
	if err := errors.Join(records.SaveClaims(held), os.Mkdir(filepath.Join(shares, claim), 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := check(state, shares); err != nil {
		t.Errorf("the same directories: %v", err)
	}
	if err := check(state, elsewhere); !errors.Is(err, errMoved) {
		t.Errorf("another directory of shares: %v", err)
	}
	if err := check(t.TempDir(), shares); !errors.Is(err, errMoved) {
		t.Errorf("another state directory: %v", err)
	}
}
