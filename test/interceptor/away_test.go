// SPDX-License-Identifier: Apache-2.0

package interceptor

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-gpu/sluice/node-agent/limits"
)

// pair is two tenants of one GPU and a yardstick beside them.
func (f *field) pair(t *testing.T, seconds int, first, second claim, firstWork, secondWork work) []use {
	t.Helper()
	f.grant(t, first)
	f.grant(t, second)
	uses := []use{
		{by: []*paced{f.enter(t, first, "pace", firstWork.arguments(seconds)...)}},
		{by: []*paced{f.enter(t, second, "pace", secondWork.arguments(seconds)...)}},
		f.yardstick(t, 1, seconds),
	}
	f.settle(t, uses)
	return uses
}

// alone says whether a process that paces itself has what it may: never more than its share, and never less than a half, which
// is what is left of the GPU where two run at the same time.
func alone(got, want, reach float64) bool { return got <= want+1 && got >= want*reach/100/2-2 }

func shared(name string, of uint32) claim { return claim{name: name, compute: of * percent} }

func limitTo(name string, of uint32) claim {
	return claim{name: name, compute: of * percent, policy: limits.PolicyCap}
}

// Whatever happens to tenants and to the arbiter, nobody hangs and nobody has more than its share.
func TestSharesOutliveTrouble(t *testing.T) { //nolint:tparallel // beside other tests its tenants would starve
	t.Run("the arbiter is killed and another comes", arbiterIsKilled)
	t.Run("there is no arbiter yet, and none any more", arbiterIsAway)
	t.Run("a tenant is stopped and goes on", tenantIsStopped)
	t.Run("tenants are killed at any point", tenantsAreKilled)
	t.Run("a kernel never ends", aKernelNeverEnds)
	t.Run("kernels are longer than a slice", kernelsAreLong)
	t.Run("shares change while they are used", sharesChangeLive)
	t.Run("processes end while their gate is shut", processesEndAtTheGate)
	t.Run("gangs of threads", gangsOfThreads)
	t.Run("gangs of processes", gangsOfProcesses)
	t.Run("a gang among others", aGangAmongOthers)
	t.Run("requests beside a tenant that is never idle", requestsAreServedSoon)
}

// When the arbiter is killed, processes pace themselves: nobody hangs and nobody is unlimited. The next arbiter takes over.
func arbiterIsKilled(t *testing.T) {
	t.Parallel()
	const seconds = 16
	f := newField(t, 2)
	f.arbitrate(t)
	uses := f.pair(t, seconds, limitTo("first", 30), limitTo("second", 60), work{us: 500}, work{us: 500, options: "--graph"})
	f.stopArbiter(t, syscall.SIGKILL)
	f.pass(t, 1500*time.Millisecond) // the lease
	got := f.portions(t, 4*time.Second, uses)
	t.Logf("without an arbiter the tenants have %.2f %% and %.2f %% (%.1f)", got[0], got[1], got[2])
	for i, want := range []float64{30, 60} {
		if !alone(got[i], want, got[2]) {
			t.Errorf("without an arbiter the tenant of %.0f %% has %.2f %%", want, got[i])
		}
	}
	f.arbitrate(t)
	f.pass(t, time.Second)
	got = f.portions(t, 4*time.Second, uses)
	t.Logf("under the next arbiter they have %.2f %% and %.2f %% (%.1f)", got[0], got[1], got[2])
	for i, want := range []float64{30, 60} {
		if !held(got[i], want, got[2]) {
			t.Errorf("under the next arbiter the tenant of %.0f %% has %.2f %%", want, got[i])
		}
	}
	for _, u := range uses {
		u.by[0].result(t)
	}
}

// An arbiter that stops well leaves the processes to themselves at once; one that never was, too.
func arbiterIsAway(t *testing.T) {
	t.Parallel()
	const seconds = 15
	f := newField(t, 2)
	uses := f.pair(t, seconds, limitTo("first", 25), limitTo("second", 50), work{us: 500}, work{us: 2000})
	check := func(when string) {
		t.Helper()
		got := f.portions(t, 3*time.Second, uses)
		t.Logf("%s the tenants have %.2f %% and %.2f %% (%.1f)", when, got[0], got[1], got[2])
		for i, want := range []float64{25, 50} {
			if !alone(got[i], want, got[2]) {
				t.Errorf("%s the tenant of %.0f %% has %.2f %%", when, want, got[i])
			}
		}
	}
	check("before there is an arbiter")
	f.arbitrate(t)
	f.pass(t, time.Second)
	got := f.portions(t, 3*time.Second, uses)
	t.Logf("under one they have %.2f %% and %.2f %% (%.1f)", got[0], got[1], got[2])
	for i, want := range []float64{25, 50} {
		if !held(got[i], want, got[2]) {
			t.Errorf("under the first arbiter the tenant of %.0f %% has %.2f %%", want, got[i])
		}
	}
	f.stopArbiter(t, os.Interrupt)
	check("after one has stopped")
	for _, u := range uses {
		if longest := u.by[0].result(t).LongestLaunchUs; longest > 1_500_000 {
			t.Errorf("%s: a launch took %d us", u.by[0].what, longest)
		}
	}
}

// A process that is stopped in its slice costs the others that slice; when it goes on it has its share again.
func tenantIsStopped(t *testing.T) {
	t.Parallel()
	const seconds = 14
	f := newField(t, 2)
	f.arbitrate(t)
	uses := f.pair(t, seconds, shared("first", 50), shared("second", 50), work{us: 500}, work{us: 500})
	uses[0].by[0].signal(t, syscall.SIGSTOP)
	f.pass(t, time.Second)
	got := f.portions(t, 3*time.Second, uses)
	t.Logf("beside a stopped tenant the other has %.2f %% (%.1f)", got[1], got[2])
	if got[0] != 0 || got[1] < 95*got[2]/100 {
		t.Errorf("beside a stopped tenant, which has %.2f %%, the other has %.2f %%", got[0], got[1])
	}
	uses[0].by[0].signal(t, syscall.SIGCONT)
	f.pass(t, time.Second)
	got = f.portions(t, 4*time.Second, uses)
	t.Logf("then they have %.2f %% and %.2f %% (%.1f)", got[0], got[1], got[2])
	if !near(got[0]/(got[0]+got[1]), 0.5, 0.015) || got[0]+got[1] < 90*got[2]/100 {
		t.Errorf("after it went on they have %.2f %% and %.2f %%", got[0], got[1])
	}
	for _, u := range uses {
		u.by[0].result(t)
	}
}

// Processes that are killed, again and again and at any point, leave the GPU to the others.
func tenantsAreKilled(t *testing.T) {
	t.Parallel()
	const seconds, kills = 12, 20
	f := newField(t, 2)
	f.arbitrate(t)
	uses := f.pair(t, seconds, shared("first", 50), shared("second", 50), work{us: 500}, work{us: 500})
	victim := uses[0].by[0]
	for range kills {
		victim.kill()
		victim = f.enter(t, shared("first", 50), "pace", work{us: 500}.arguments(seconds)...)
		f.pass(t, 100*time.Millisecond)
	}
	victim.kill()
	f.pass(t, time.Second)
	got := f.portions(t, 3*time.Second, uses[1:])
	t.Logf("after the last the other has %.2f %% (%.1f)", got[0], got[1])
	if got[0] < 97*got[1]/100 {
		t.Errorf("when all have been killed the other has %.2f %%", got[0])
	}
	if longest := uses[1].by[0].result(t).LongestLaunchUs; longest > 1_000_000 {
		t.Errorf("a launch of the other took %d us", longest)
	}
	uses[2].by[0].result(t)
}

// beside has a tenant of a half work beside another program of a half, and returns it and what it had of the GPU.
func beside(t *testing.T, period time.Duration, program string, arguments ...string) (*paced, float64, float64) {
	t.Helper()
	f := newField(t, 2)
	f.arbitrate(t)
	f.grant(t, shared("long", 50))
	f.enter(t, shared("long", 50), program, arguments...)
	f.grant(t, shared("other", 50))
	seconds := int(period/time.Second) + 4
	uses := []use{{by: []*paced{f.enter(t, shared("other", 50), "pace", work{us: 500}.arguments(seconds)...)}}, f.yardstick(t, 1, seconds)}
	f.settle(t, uses)
	got := f.portions(t, period, uses)
	return uses[0].by[0], got[0], got[1]
}

// A kernel that never ends does not keep the others from the GPU: they run beside it, as the driver has it.
func aKernelNeverEnds(t *testing.T) {
	t.Parallel()
	_, got, reach := beside(t, 4*time.Second, "endless")
	t.Logf("beside an endless kernel the other has %.2f %% (%.1f)", got, reach)
	if got < 45*reach/100 {
		t.Errorf("beside an endless kernel the other has %.2f %%", got)
	}
}

// What kernels take that are longer than a slice they have had, and the others have theirs later.
func kernelsAreLong(t *testing.T) {
	t.Parallel()
	other, got, reach := beside(t, 10*time.Second, "pace", "60", "2000000", "--block", "--depth", "2")
	t.Logf("beside kernels of two seconds the other has %.2f %% (%.1f)", got, reach)
	if got < 45*reach/100 {
		t.Errorf("beside kernels of two seconds the other has %.2f %%", got)
	}
	if longest := other.result(t).LongestLaunchUs; longest > 1_000_000 {
		t.Errorf("a launch of the other took %d us", longest)
	}
}

// A share that is changed while its processes run is in force within a second.
func sharesChangeLive(t *testing.T) {
	t.Parallel()
	const seconds = 14
	f := newField(t, 2)
	f.arbitrate(t)
	uses := f.pair(t, seconds, limitTo("first", 30), limitTo("second", 30), work{us: 500}, work{us: 500})
	for _, want := range []uint32{60, 10} {
		f.grant(t, limitTo("first", want))
		f.pass(t, time.Second)
		got := f.portions(t, 3*time.Second, uses)
		t.Logf("the first has %.2f %%, want %d %%; the second %.2f %% (%.1f)", got[0], want, got[1], got[2])
		if !held(got[0], float64(want), got[2]) || !held(got[1], 30, got[2]) {
			t.Errorf("a second after the first was given %d %% it has %.2f %%, and the second, of 30 %%, %.2f %%", want, got[0], got[1])
		}
	}
	f.grant(t, shared("first", 30))
	f.grant(t, shared("second", 30))
	f.pass(t, time.Second)
	got := f.portions(t, 2*time.Second, uses)
	t.Logf("without caps they have %.2f %% and %.2f %% (%.1f)", got[0], got[1], got[2])
	if got[0]+got[1] < 90*got[2]/100 {
		t.Errorf("a second after their caps were taken away they have %.2f %% and %.2f %%", got[0], got[1])
	}
	for _, u := range uses {
		u.by[0].result(t)
	}
}

// A program that ends, or replaces itself, while its gate is shut, ends.
func processesEndAtTheGate(t *testing.T) {
	t.Parallel()
	f := newField(t, 1)
	f.arbitrate(t)
	f.grant(t, limitTo("small", 1))
	f.grant(t, shared("other", 90))
	other := f.enter(t, shared("other", 90), "pace", work{us: 500}.arguments(60)...)
	all := []*paced{}
	for i := range 4 {
		all = append(all, f.enter(t, limitTo("small", 1), "pace", "1", "500", "--block", "--threads", fmt.Sprint(i+1)))
	}
	for _, p := range all {
		p.result(t)
	}
	other.kill()
}

// Without an agent at all, a program is held to what its environment says.
func TestStandAloneLimit(t *testing.T) {
	const seconds = 9
	wants := []int{10, 30, 60}
	works := []work{{us: 20}, {us: 500}, {us: 5000, options: "--graph"}}
	f := newField(t, len(wants)*len(works)+1)
	uses := []use{}
	for i, want := range wants {
		for j, w := range works {
			gpu := i*len(works) + j
			environment := append(f.environment(t, ""), visible(gpu), "LD_PRELOAD="+library, fmt.Sprintf("SLUICE_COMPUTE_LIMIT=%d", want),
				fmt.Sprintf("SLUICE_GROUP=%s-%d", f.group, gpu))
			uses = append(uses, use{gpu: gpu, by: []*paced{f.begin(t, environment, built(t, "interceptor/build/tests/tools/pace"), w.arguments(seconds)...)}})
		}
	}
	uses = append(uses, f.yardstick(t, len(uses), seconds))
	f.settle(t, uses)
	got := f.portions(t, (seconds-3)*time.Second, uses)
	reach := got[len(got)-1]
	for i, u := range uses[:len(uses)-1] {
		want := float64(wants[i/len(works)])
		t.Logf("%s limited to %.0f %% has %.2f %% (%.1f)", works[i%len(works)], want, got[i], reach)
		if got[i] > want+2 || got[i] < want*reach/100-3 {
			t.Errorf("%s limited to %.0f %% has %.2f %%", works[i%len(works)], want, got[i])
		}
		u.by[0].result(t)
	}
}

// What a program does while it exits is held as what it did before: a handler of its exit can go on for as long as it likes.
func TestAnExitHandlerIsHeldToo(t *testing.T) {
	const seconds, want = 4, 20
	f := newField(t, 1)
	environment := append(f.environment(t, ""), visible(0), "LD_PRELOAD="+library, fmt.Sprintf("SLUICE_COMPUTE_LIMIT=%d", want), "SLUICE_GROUP="+f.group)
	p := f.begin(t, environment, built(t, "interceptor/build/tests/tools/pace"), work{us: 500, options: "--at-exit"}.arguments(seconds)...)
	got := 100 * float64(p.result(t).Done) * 500e-6 / seconds
	t.Logf("in the handler it has %.1f %%", got)
	if got > want+2 || got == 0 {
		t.Errorf("in the handler of its exit a program limited to %d %% has %.1f %%", want, got)
	}
}
