// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"testing"
)

// BenchmarkQueue looks at a queue of 5,000 pods of a cohort of 50 namespaces that is nearly full.
func BenchmarkQueue(b *testing.B) {
	var domain Domain
	domain.Ledger = "cohort-c"
	ledger := NewLedger(domain.Ledger)
	var waiting []Pod
	for i := range 50 {
		namespace := fmt.Sprintf("team-%02d", i)
		domain.Quotas = append(domain.Quotas, Quota{
			Namespace: namespace, Name: "q", Pools: []string{"p"}, Cohort: "c", Joined: true, Queue: true,
			Hard: Amounts{"gpus": 20, "memory": 200}, Guaranteed: Amounts{"gpus": 10, "memory": 100},
		})
		ledger.Namespaces[namespace] = Entry{Version: "1", Counted: Charges{"p": {"gpus": 9, "memory": 90}}}
		for j := range 100 {
			p := pod(fmt.Sprintf("pod-%d", j), int32(j%3), j, Charges{"p": {"gpus": 1, "memory": 10}})
			waiting = append(waiting, in(namespace, p))
		}
	}
	for b.Loop() {
		if turns := domain.Queue(ledger, nil, waiting, start()); len(turns) != len(waiting) {
			b.Fatal("a pod has no turn")
		}
	}
}
