// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"testing"
)

// BenchmarkVerdict judges in a cohort of as many namespaces and reservations as a ledger holds at most.
func BenchmarkVerdict(b *testing.B) {
	for _, size := range []struct{ namespaces, reservations int }{{1, 10}, {8, 200}, {256, 1000}} {
		b.Run(fmt.Sprintf("%d namespaces, %d reservations", size.namespaces, size.reservations), func(b *testing.B) {
			domain := &Domain{Ledger: "cohort-c"}
			for i := range size.namespaces {
				domain.Quotas = append(domain.Quotas, Quota{
					Namespace: fmt.Sprintf("team-%03d", i), Name: "main", Pools: []string{"p"}, Cohort: "c", Joined: true,
					Hard: amounts("memory", "100Ti", "gpus", "100000"), Guaranteed: amounts("memory", "50Ti"),
				})
			}
			l := holding(domain, nil)
			for i := range size.reservations {
				l.Reserve(Ask{
					UID: fmt.Sprint(i), Namespace: domain.Quotas[i%size.namespaces].Namespace, Version: "1",
					Charges: inPool("p", "memory", "10Gi", "gpus", "1", "compute", "10"),
				}, start())
			}
			ask := Ask{UID: "u", Namespace: "team-000", Version: "1", Charges: inPool("p", "memory", "10Gi", "gpus", "1", "compute", "10")}
			for b.Loop() {
				if refusal := domain.Verdict(l, ask, start()); refusal != nil {
					b.Fatal(refusal)
				}
			}
		})
	}
}
