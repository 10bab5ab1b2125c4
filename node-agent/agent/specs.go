// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"github.com/sluice-gpu/sluice/node-agent/cdi"
	"github.com/sluice-gpu/sluice/node-agent/claims"
)

// specs makes CDI grants of what claims are granted.
type specs struct{ *cdi.Door }

var _ claims.Specs = specs{}

// Write replaces the claim's CDI spec.
func (s specs) Write(claimUID string, grants []claims.Grant) ([]string, error) {
	list := make([]cdi.Grant, 0, len(grants))
	for _, g := range grants {
		grant := cdi.Grant{Name: g.Name, UUID: g.UUID, Env: g.Env, Ask: g.Ask}
		for _, m := range g.Mounts {
			grant.Mounts = append(grant.Mounts, cdi.Mount(m))
		}
		list = append(list, grant)
	}
	return s.Door.Write(claimUID, list) //nolint:wrapcheck // the door's errors say what was being done
}
