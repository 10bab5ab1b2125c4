// SPDX-License-Identifier: Apache-2.0

package violations

import (
	"github.com/sluice-gpu/sluice/internal/violation"
	"github.com/sluice-gpu/sluice/node-agent/usage"
)

// samples are the shares as a look has shown them. What a process that has several shares of a device holds is said of the first.
func samples(n *node, l violation.Look, found violation.Findings) []usage.Sample {
	held, silent := map[violation.Share]uint64{}, map[violation.Share]bool{}
	for _, p := range l.Processes {
		if len(p.Shares) == 0 {
			continue
		}
		held[p.Shares[0]] += p.Bytes
		silent[p.Shares[0]] = silent[p.Shares[0]] || !p.Figure
	}
	violated := map[violation.Share]bool{}
	for _, f := range found.Violations {
		violated[f.Share] = true
	}
	list := make([]usage.Sample, 0, len(n.order))
	for _, id := range n.order {
		s := n.shares[id]
		_, blind := l.Blind[s.device]
		sample := usage.Sample{
			Claim: s.claim, Result: s.result, Device: s.device, Pool: s.pool, Words: s.words,
			Held: held[id], Known: !blind && !silent[id], Violated: violated[id],
		}
		if ledger, ok := n.ledgers[id]; ok {
			sample.Ledger = &ledger
		}
		list = append(list, sample)
	}
	return list
}
