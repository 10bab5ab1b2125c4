// SPDX-License-Identifier: Apache-2.0

package interceptor

import (
	"strconv"
	"testing"
	"time"
)

func gangsOfThreads(t *testing.T) {
	t.Parallel()
	gangsMoveTogether(t, "")
}

func gangsOfProcesses(t *testing.T) {
	t.Parallel()
	gangsMoveTogether(t, "--processes")
}

// Two jobs, each on the same two GPUs, whose kernels wait on one GPU for their peers on the other: their gates move together, so
// that both go on, as threads of a process and as processes.
func gangsMoveTogether(t *testing.T, option string) {
	t.Helper()
	const ranks = 2
	const each = time.Millisecond // a collective, of which the program has ahead so many
	const ahead = 4
	f := newField(t, 2*ranks)
	f.arbitrate(t)
	first, second := shared("first", 50), shared("second", 50)
	first.gpus, second.gpus = []int{0, 1}, []int{0, 1}
	f.grant(t, first)
	f.grant(t, second)
	program := built(t, "interceptor/build/tests/tools/gang")
	arguments := func(id string) []string {
		return []string{"8", strconv.FormatInt(each.Microseconds(), 10), strconv.Itoa(ranks), id, option}
	}
	// Nobody paces these, and nobody else is on their GPUs.
	free := f.begin(t, append(f.environment(t, ""), visible(2, 3)), program, arguments("9")...)
	a := f.enter(t, first, "gang", arguments("1")...)
	b := f.enter(t, second, "gang", arguments("2")...)
	ideal := free.result(t)
	got := []paceOutcome{a.result(t), b.result(t)}
	sum := float64(got[0].Done + got[1].Done)
	t.Logf("%d and %d collectives, longest gaps %d and %d us; unpaced and alone %d, %d us",
		got[0].Done, got[1].Done, got[0].LongestGapUs, got[1].LongestGapUs, ideal.Done, ideal.LongestGapUs)
	if sum < 0.9*float64(ideal.Done) {
		t.Errorf("together they completed %.0f collectives, one alone %d", sum, ideal.Done)
	}
	if !near(float64(got[0].Done)/sum, 0.5, 0.03) {
		t.Errorf("they completed %d and %d collectives, want as many", got[0].Done, got[1].Done)
	}
	// One's gap is the other's slice, and two bound it; then what the other has launched by its end has to end too.
	const slice = 25 * time.Millisecond
	most := uint64((2*slice + ahead*each).Microseconds()) + ideal.LongestGapUs
	for _, g := range got {
		if g.LongestGapUs > most {
			t.Errorf("for %d us nothing was completed, want at most %d", g.LongestGapUs, most)
		}
	}
}

// A job on two GPUs and tenants of one GPU each.
func aGangAmongOthers(t *testing.T) {
	t.Parallel()
	const seconds = 9
	f := newField(t, 3)
	f.arbitrate(t)
	job := shared("job", 50)
	job.gpus = []int{0, 1}
	f.grant(t, job)
	uses := []use{}
	p := f.enter(t, job, "gang", "9", "1000", "2", "1")
	uses = append(uses, use{gpu: 0, by: []*paced{p}}, use{gpu: 1, by: []*paced{p}})
	for gpu, name := range []string{"left", "right"} {
		c := shared(name, 50)
		c.gpus = []int{gpu}
		f.grant(t, c)
		uses = append(uses, use{gpu: gpu, by: []*paced{f.enter(t, c, "pace", work{us: 500}.arguments(seconds)...)}})
	}
	uses = append(uses, f.yardstick(t, 2, seconds))
	f.settle(t, uses)
	got := f.portions(t, (seconds-3)*time.Second, uses)
	t.Logf("the job has %.2f and %.2f %% of its GPUs, the others %.2f and %.2f %% (%.1f)", got[0], got[1], got[2], got[3], got[4])
	for gpu := range 2 {
		sum := got[gpu] + got[gpu+2]
		if !near(got[gpu]/sum, 0.5, 0.03) || sum < 90*got[4]/100 {
			t.Errorf("on GPU %d the job has %.2f %%, the other %.2f %%", gpu, got[gpu], got[gpu+2])
		}
	}
	for _, u := range uses[1:] {
		u.by[0].result(t)
	}
}
