// SPDX-License-Identifier: Apache-2.0

package request

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/shares"
)

// perhapsLimitRange tells where amounts come from that the tenant did not write.
const perhapsLimitRange = " (an amount that you did not write comes from a LimitRange of the namespace)"

// Resolution is how a pod's asks are met.
type Resolution struct {
	// Canonical is the request that the pod's template is made from.
	Canonical Canonical
	// RequestOf names the request that each asking container uses, by container.
	RequestOf map[string]string
	// Warnings are what the tenant should hear although the pod is admitted.
	Warnings []string
}

// Resolve decides from which pool and how a pod's asks are met, or refuses with a sentence that says what to write
// instead. An error of type *UnknownPoolError may only mean that the pools are not up to date.
//
// Each asking main container gets a request of its own, named after it. An asking init container shares the first asking
// main container's; where no main container asks, all init containers, which run one after another, share one request
// with the largest of their amounts, named after the first of them.
func Resolve(asks Asks, pools []Pool) (Resolution, error) {
	if len(asks.Containers) == 0 {
		return Resolution{}, errors.New("no container asks for a GPU")
	}
	pool, err := choose(asks.Pool, pools)
	if err != nil {
		return Resolution{}, err
	}
	grants, requestOf, err := pool.grants(asks.Containers)
	if err != nil {
		return Resolution{}, err
	}
	resolution := Resolution{
		Canonical: Canonical{Version: canonicalVersion, Pool: pool.Name, Form: pool.Form},
		RequestOf: requestOf,
		Warnings:  slices.Clone(asks.Warnings),
	}
	var failures []error
	for _, grant := range grants {
		request, warnings, err := pool.serve(grant)
		if err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", grant.describe(), err))
			continue
		}
		resolution.Canonical.Requests = append(resolution.Canonical.Requests, request)
		for _, warning := range warnings {
			resolution.Warnings = append(resolution.Warnings, grant.describe()+": "+warning)
		}
	}
	if err := errors.Join(failures...); err != nil {
		return Resolution{}, oneLine(err)
	}
	slices.SortFunc(resolution.Canonical.Requests, func(a, b Request) int { return cmp.Compare(a.Name, b.Name) })
	if err := checkTotals(resolution.Canonical.Requests); err != nil {
		return Resolution{}, err
	}
	resolution.Canonical.Distinct = pool.mustDiffer(resolution.Canonical.Requests)
	if resolution.Canonical.Distinct {
		if warning := pool.warnOfDifferent(resolution.Canonical.Requests); warning != "" {
			resolution.Warnings = append(resolution.Warnings, warning)
		}
	}
	return resolution, nil
}

// grants says which request each container uses, and what each request is for.
func (p *Pool) grants(asks []Ask) (grants []Ask, requestOf map[string]string, err error) {
	requestOf = map[string]string{}
	for _, ask := range asks {
		if !ask.Init {
			grants = append(grants, ask)
			requestOf[ask.Container] = ask.Container
		}
	}
	if len(grants) == 0 {
		shared := asks[0]
		for _, ask := range asks {
			shared.Amounts = p.largerOf(shared.Amounts, ask.Amounts)
			requestOf[ask.Container] = shared.Container
		}
		return []Ask{shared}, requestOf, nil
	}
	first := grants[0]
	for _, ask := range asks {
		if !ask.Init {
			continue
		}
		if p.largerOf(first.Amounts, ask.Amounts) != first.Amounts {
			return nil, nil, fmt.Errorf("%s asks for more (%s) than %s (%s), whose GPUs it uses before that starts: "+
				"write the larger amounts at %s%s", ask.describe(), ask.Amounts, first.describe(), first.Amounts, first.describe(),
				perhapsLimitRange)
		}
		requestOf[ask.Container] = first.Container
	}
	return grants, requestOf, nil
}

// largerOf takes the larger of each amount. An amount that was left out stands for what the pool gives then; a is kept
// where both mean the same.
func (p *Pool) largerOf(a, b Amounts) Amounts {
	larger := a
	larger.GPUs = max(a.GPUs, b.GPUs)
	if p.effectiveMemory(b) > p.effectiveMemory(a) {
		larger.MemoryMi = b.MemoryMi
	}
	if p.effectiveCompute(b) > p.effectiveCompute(a) {
		larger.Compute = b.Compute
	}
	return larger
}

// effectiveMemory is what amounts get of each GPU, in Mi.
func (p *Pool) effectiveMemory(amounts Amounts) int64 {
	switch {
	case amounts.MemoryMi > 0 || p.Form == MIG:
		return amounts.MemoryMi
	case p.DefaultMemory > 0:
		return p.DefaultMemory / mebi
	default:
		return MaxMemoryMi
	}
}

func (p *Pool) effectiveCompute(amounts Amounts) int64 {
	if amounts.Compute > 0 || p.Form == MIG {
		return amounts.Compute
	}
	return p.DefaultCompute
}

// serve makes the request that serves one ask.
func (p *Pool) serve(ask Ask) (Request, []string, error) {
	request := Request{
		Name: ask.Container, Count: ask.Amounts.GPUs, MemoryMi: ask.Amounts.MemoryMi, Compute: ask.Amounts.Compute,
	}
	switch p.Form {
	case MIG:
		return p.serveMIG(request)
	case Exclusive:
		return p.serveExclusive(request)
	default:
		return p.serveShared(request)
	}
}

func (p *Pool) serveExclusive(request Request) (Request, []string, error) {
	if request.MemoryMi > 0 || request.Compute > 0 {
		return Request{}, nil, fmt.Errorf("pool %s gives whole GPUs: leave out %s and %s and ask for %s: %d, or name a pool that "+
			"shares its GPUs in the label %s%s", p.Name, v1alpha1.ResourceMemory, v1alpha1.ResourceCompute,
			v1alpha1.ResourceGPU, request.Count, v1alpha1.PoolLabel, perhapsLimitRange)
	}
	return request, p.warnOfCount(request, 0), nil
}

func (p *Pool) serveShared(request Request) (Request, []string, error) {
	if request.MemoryMi > 0 && request.MemoryMi*mebi < p.LeastMemory {
		return Request{}, nil, fmt.Errorf("%s: %s is too small to start in: a process that uses CUDA takes up to %s of GPU memory "+
			"for itself: ask for at least %s, with its unit%s", v1alpha1.ResourceMemory, formatAsked(request.MemoryMi),
			FormatMemory(shares.ContextBytes), FormatMemory(p.LeastMemory), perhapsLimitRange)
	}
	largest := p.largest()
	if asked := request.MemoryMi * mebi; len(p.GPUs) > 0 && asked > largest {
		return Request{}, nil, fmt.Errorf("%s: %s is more than any GPU of pool %s has; the largest has %s: %s",
			v1alpha1.ResourceMemory, formatAsked(request.MemoryMi), p.Name, FormatMemory(largest), spread(request, largest))
	}
	if most := p.mostCompute(); len(p.GPUs) > 0 && request.Compute > most {
		return Request{}, nil, fmt.Errorf("%s: %d is more than any MIG instance of pool %s has; the largest has %d: ask for at most that, "+
			"or name another pool in the label %s%s", v1alpha1.ResourceCompute, request.Compute, p.Name, most, v1alpha1.PoolLabel, perhapsLimitRange)
	}
	warnings := p.warnOfCount(request, request.MemoryMi*mebi)
	if request.MemoryMi == 0 && p.DefaultMemory == 0 {
		warnings = append(warnings, fmt.Sprintf("without %s it takes all memory of a GPU of pool %s: add what it needs, such as 10Gi",
			v1alpha1.ResourceMemory, p.Name))
	}
	return request, warnings, nil
}

// spread says how to ask for the same memory with GPUs of at most largest bytes.
func spread(request Request, largest int64) string {
	if largest < mebi {
		return "name another pool in the label " + v1alpha1.PoolLabel
	}
	total := request.Count * request.MemoryMi
	gpus := divideUp(total, largest/mebi)
	if gpus > MaxGPUs {
		return "ask for at most " + FormatMemory(largest) + " of each GPU"
	}
	each := divideUp(total, gpus)
	if whole := divideUp(each, 1024) * 1024; whole*mebi <= largest {
		each = whole
	}
	return fmt.Sprintf("amounts are per GPU, so write %s: %d with %s: %s, or ask for at most %s",
		v1alpha1.ResourceGPU, gpus, v1alpha1.ResourceMemory, formatAsked(each), FormatMemory(largest))
}

func divideUp(a, b int64) int64 { return (a + b - 1) / b }

// noGPUYet says that the pool gives no GPU, and whether some are on their way.
func (p *Pool) noGPUYet() string {
	if p.Changing == 0 {
		return fmt.Sprintf("pool %s has no GPU yet", p.Name)
	}
	return fmt.Sprintf("pool %s has no GPU in the form it wants yet (%d are being changed, see kubectl get gpupool %s)",
		p.Name, p.Changing, p.Name)
}

// warnOfCount says that no node has as many GPUs as asked for. It is no refusal: nodes come and go.
func (p *Pool) warnOfCount(request Request, memory int64) []string {
	if len(p.GPUs) == 0 {
		return []string{p.noGPUYet() + ": the pod waits until it has"}
	}
	most := p.mostOnOneNode(memory)
	if request.Count <= most {
		return nil
	}
	return []string{fmt.Sprintf("%s: %d, but no node has more than %d such GPUs in pool %s: the pod waits for a larger node",
		v1alpha1.ResourceGPU, request.Count, most, p.Name)}
}

// checkTotals keeps a claim within what Kubernetes allows.
func checkTotals(requests []Request) error {
	var devices int64
	for _, request := range requests {
		devices += request.Count
	}
	switch {
	case len(requests) > maxRequests:
		return fmt.Errorf("%d containers ask for GPUs, more than the %d that one pod may have: leave out the limits of containers "+
			"that need none", len(requests), maxRequests)
	case devices > maxDevices:
		return fmt.Errorf("the pod asks for %d GPUs in all, more than the %d that one pod may have: divide it into several pods",
			devices, maxDevices)
	default:
		return nil
	}
}
