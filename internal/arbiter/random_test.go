// SPDX-License-Identifier: Apache-2.0

package arbiter_test

import (
	"fmt"
	"testing"

	"github.com/sluice-gpu/sluice/internal/arbiter"
)

// randomProc is a process of any kind.
func (s *sim) randomProc() *proc {
	pick := func(list ...arbiter.Time) arbiter.Time { return list[s.rnd.IntN(len(list))] }
	p := &proc{kernel: pick(50*us, 100*us, 500*us, 2*ms, 20*ms)}
	switch s.rnd.IntN(8) {
	case 0, 1, 2:
		p.every = pick(3*ms, 10*ms, 33*ms, 400*ms)
		p.work = p.every * arbiter.Time(1+s.rnd.IntN(9)) / 100
	case 3:
		p.from = arbiter.Time(s.rnd.Int64N(int64(5 * sec)))
		p.to = p.from + arbiter.Time(s.rnd.Int64N(int64(5*sec)))
	case 4:
		p.noisy = s.rnd.IntN(4) == 0
	}
	return p
}

// TestWhateverTenantsDoTheOthersGoOn lets tenants of all kinds come together on a few GPUs, gangs among them, some of which are
// killed. Nobody runs beside another that has not overrun, nobody waits long, and no GPU idles while somebody wants it.
func TestWhateverTenantsDoTheOthersGoOn(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			s := newSim(t, seed)
			gpus := 1 + s.rnd.IntN(4)
			compute := func() uint32 { return uint32(s.rnd.IntN(30)) }
			for i := range 4 + s.rnd.IntN(12) {
				name := fmt.Sprint("tenant ", i)
				first := s.rnd.IntN(gpus)
				if last := first + s.rnd.IntN(3); s.rnd.IntN(5) == 0 && last > first && last < gpus {
					var list []byte
					for gpu := first; gpu <= last; gpu++ {
						list = append(list, byte(gpu))
					}
					s.newGang(name, compute(), s.rnd.IntN(3) == 0, 500*us, list...)
					continue
				}
				procs := []*proc{s.randomProc()}
				for s.rnd.IntN(3) == 0 {
					procs = append(procs, s.randomProc())
				}
				s.share(name, byte(first), compute()*100, s.rnd.IntN(3) == 0, procs...)
			}
			// One that always takes what nobody wants shows where a GPU idles.
			filler := s.share("filler", 0, 100, false, &proc{kernel: 200 * us})
			s.run(5 * sec)
			victim := s.gates[s.rnd.IntN(len(s.gates)-1)]
			for _, p := range victim.procs {
				p.dead = p.gang == nil
			}
			before := s.busy[0]
			s.run(15 * sec)
			if busy := 100 * float64(s.busy[0]-before) / float64(15*sec); busy < 85 {
				t.Errorf("a GPU that somebody always wants was busy %.1f points of the time", busy)
			}
			if got := portion(filler, 20*sec); got < 0.5 {
				t.Errorf("the tenant that always wants had %.2f points", got)
			}
			for _, g := range s.gates {
				for _, p := range g.procs {
					if !p.dead && p.worst > 4*sec {
						t.Errorf("%s waited %d ms", g.tenant, p.worst/ms)
					}
					if !p.dead && s.now < p.to && p.wants && s.now-p.wantSince > 4*sec {
						t.Errorf("%s waits for %d ms", g.tenant, (s.now-p.wantSince)/ms)
					}
				}
			}
		})
	}
}
