// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-gpu/sluice/internal/contexts"
	"github.com/sluice-gpu/sluice/node-agent/checkpoint"
	"github.com/sluice-gpu/sluice/node-agent/limits"
)

// share is one whose processes keep a ledger.
type share struct {
	id     contexts.Share
	key    contexts.Key
	device device
	words  limits.Words
	before []limits.Holder
}

// device is a GPU or a MIG device of it.
type device struct{ gpu, uuid string }

// gather looks at all processes of shares. Ledgers are read before and after NVML is asked, and what changed meanwhile is
// left out: the two would speak of different moments.
func (m *Meter) gather(ctx context.Context) ([]contexts.Sight, error) {
	shares, failed := m.shares()
	driver := map[device]map[int]uint64{}
	for _, s := range shares {
		if _, asked := driver[s.device]; asked {
			continue
		}
		processes, err := m.Hardware.Processes(ctx, s.device.gpu, s.device.uuid)
		if err != nil {
			failed = errors.Join(failed, err)
		}
		driver[s.device] = map[int]uint64{}
		for _, p := range processes {
			driver[s.device][p.PID] += p.Bytes
		}
	}
	several := drawsOnSeveral(shares)
	var sights []contexts.Sight
	for _, s := range shares {
		after, err := m.Shares.Holders(s.id.ClaimUID, s.id.Index)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		for i, h := range s.before {
			still := i < len(after) && after[i] == h
			sight := contexts.Sight{
				Process: contexts.Process{Share: s.id, Stamp: h.Stamp}, Key: s.key,
				Limit: s.words.MemoryLimit, Context: s.words.Context, Overhead: s.words.Overhead, Held: h.Held,
				Mixed: h.Exported != 0 || h.Imported != 0 || several[drawer{s.device, h.PID}],
			}
			if still {
				sight.Driver = driver[s.device][h.PID]
			}
			sights = append(sights, sight)
		}
	}
	return sights, failed
}

// drawer is a process on a device.
type drawer struct {
	device device
	pid    int
}

// drawsOnSeveral says which processes have several shares of one device: NVML's figure is all of theirs.
func drawsOnSeveral(shares []share) map[drawer]bool {
	several := map[drawer]bool{}
	for _, s := range shares {
		for _, h := range s.before {
			_, seen := several[drawer{s.device, h.PID}]
			several[drawer{s.device, h.PID}] = seen
		}
	}
	return several
}

// shares are those with living processes.
func (m *Meter) shares() ([]share, error) {
	claims, err := m.Records.Claims()
	if err != nil {
		return nil, fmt.Errorf("reading the prepared claims: %w", err)
	}
	published, err := m.Records.Published()
	if err != nil {
		return nil, fmt.Errorf("reading the published devices: %w", err)
	}
	var found []share
	var failed error
	for _, claim := range claims.Sorted() {
		for _, r := range claim.Results {
			key, ok := keyOf(r, &published)
			if claim.State != checkpoint.Prepared || !r.Enforced || !ok {
				continue
			}
			s, err := m.share(claim.UID, r, key)
			if err != nil {
				failed = errors.Join(failed, err)
			} else if len(s.before) > 0 {
				found = append(found, s)
			}
		}
	}
	return found, failed
}

func (m *Meter) share(claimUID string, r checkpoint.Result, key contexts.Key) (share, error) {
	s := share{id: contexts.Share{ClaimUID: claimUID, Index: r.Index}, key: key, device: device{gpu: r.GPU, uuid: r.GPU}}
	if r.Instance != nil {
		s.device.uuid = r.Instance.UUID
	}
	var err error
	s.words, err = m.Shares.Words(claimUID, r.Index)
	if errors.Is(err, limits.ErrNoShare) {
		return s, nil // it is being released
	}
	if err != nil {
		return s, fmt.Errorf("reading the limits of a share: %w", err)
	}
	if s.before, err = m.Shares.Holders(claimUID, r.Index); err != nil {
		return s, fmt.Errorf("looking at the processes of a share: %w", err)
	}
	return s, nil
}
