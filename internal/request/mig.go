// SPDX-License-Identifier: Apache-2.0

package request

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// maxAlternatives is how many alternatives Kubernetes allows in one request.
const maxAlternatives = 8

// plainProfile matches the profiles that an amount may become: those without a suffix such as +me or -me, whose media
// engines are scarce and therefore given only to who names them.
var plainProfile = regexp.MustCompile(`^[1-9][0-9]?g\.([1-9][0-9]{0,3})gb$`)

// serveMIG turns amounts into alternatives, the smallest instance first.
func (p *Pool) serveMIG(request Request) (Request, []string, error) {
	if request.MemoryMi == 0 && request.Compute == 0 {
		return Request{}, nil, fmt.Errorf("pool %s gives MIG instances, so %s alone does not say how large: add %s, such as 10Gi%s",
			p.Name, v1alpha1.ResourceGPU, v1alpha1.ResourceMemory, p.orByName())
	}
	if len(p.Profiles) == 0 {
		return Request{}, nil, p.noProfileYet()
	}
	request.Profiles = p.alternatives(request)
	if len(request.Profiles) == 0 {
		return Request{}, nil, p.tooLarge(request)
	}
	var warnings []string
	if sentence := p.LargerProfile(request); sentence != "" {
		warnings = append(warnings, sentence)
	}
	if request.Count > 1 {
		warnings = append(warnings, fmt.Sprintf("%s: %d gives %d MIG instances, but one CUDA process sees only one of them",
			v1alpha1.ResourceGPU, request.Count, request.Count))
	}
	return request, warnings, nil
}

// noProfileYet refuses amounts while it is not known which profiles the pool will have.
func (p *Pool) noProfileYet() error {
	which, when := fmt.Sprintf("pool %s has no GPU yet", p.Name), "kubectl get gpupool "+p.Name+" shows GPUs"
	if changing := p.Changing + len(p.GPUs); changing > 0 {
		which = fmt.Sprintf("no GPU of pool %s is divided by MIG yet (%d are being changed, see kubectl get gpupool %s)", p.Name, changing, p.Name)
		when = "they are"
	}
	return fmt.Errorf("%s, so it cannot be said which MIG instance holds that: try again when %s, "+
		"or name another pool in the label %s", which, when, v1alpha1.PoolLabel)
}

// alternatives are the profiles that hold the amounts: of each board one for every memory size, the one with the least
// compute that is enough, so that nobody takes a large instance while a small one of the pool is free.
func (p *Pool) alternatives(request Request) []string {
	type size struct {
		product string
		memory  int64
	}
	best := map[size]Profile{}
	for _, profile := range p.Profiles {
		if !profile.holds(request) {
			continue
		}
		key := size{profile.Product, profile.Memory}
		if known, found := best[key]; !found || bySize(profile, known) < 0 {
			best[key] = profile
		}
	}
	chosen := make([]Profile, 0, len(best))
	for _, profile := range best {
		chosen = append(chosen, profile)
	}
	slices.SortFunc(chosen, bySize)
	var alternatives []string
	for _, profile := range chosen {
		if len(alternatives) < maxAlternatives && !slices.Contains(alternatives, profile.Name) {
			alternatives = append(alternatives, profile.Name)
		}
	}
	return alternatives
}

// bySize orders profiles from the smallest to the largest, and equal ones by name.
func bySize(a, b Profile) int {
	return cmp.Or(cmp.Compare(a.Memory, b.Memory), cmp.Compare(a.Compute, b.Compute), cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.Product, b.Product))
}

// holds says whether an instance of the profile may serve the request.
func (p Profile) holds(request Request) bool {
	return p.plain() && p.Memory >= request.MemoryMi*mebi && p.Compute >= request.Compute
}

func (p Profile) plain() bool { return plainProfile.MatchString(p.Name) }

// nominalMi is the memory that a profile's name promises, in Mi.
func (p Profile) nominalMi() int64 {
	match := plainProfile.FindStringSubmatch(p.Name)
	if match == nil {
		return 0
	}
	gigabytes, err := strconv.ParseInt(match[1], 10, 64)
	if err != nil {
		return 0
	}
	return gigabytes * 1024
}

// LargerProfile says that a request gets a larger instance than its amount suggests, because the profile whose name
// suggests it has a little less than that; "" where this is not so.
func (p *Pool) LargerProfile(request Request) string {
	if p.Form != MIG || len(request.Profiles) == 0 {
		return ""
	}
	taken := p.smallest(func(profile Profile) bool { return profile.Name == request.Profiles[0] && profile.holds(request) })
	missed := p.smallest(func(profile Profile) bool {
		return profile.plain() && profile.Compute >= request.Compute && profile.nominalMi() >= request.MemoryMi &&
			profile.Memory < request.MemoryMi*mebi
	})
	if missed == nil || taken == nil || missed.nominalMi() >= taken.nominalMi() {
		return ""
	}
	sentence := fmt.Sprintf("%s does not fit %s (%s): takes %s (%s)", formatAsked(request.MemoryMi),
		missed.Name, FormatMemory(missed.Memory), taken.Name, FormatMemory(taken.Memory))
	if len(request.Profiles) > 1 {
		sentence += " or larger"
	}
	return sentence
}

// tooLarge refuses amounts that no profile of the pool holds.
func (p *Pool) tooLarge(request Request) error {
	largest := p.largestProfile(Profile.plain)
	fitting := p.largestProfile(func(profile Profile) bool { return profile.plain() && profile.Compute >= request.Compute })
	asked := Amounts{GPUs: request.Count, MemoryMi: request.MemoryMi, Compute: request.Compute}
	switch {
	case largest == nil:
		return fmt.Errorf("pool %s has no MIG profile that an amount may become: name another pool in the label %s%s",
			p.Name, v1alpha1.PoolLabel, p.orByName())
	case fitting == nil:
		return fmt.Errorf("no MIG instance of pool %s has %s: %d; the largest, %s, has %d", p.Name,
			v1alpha1.ResourceCompute, request.Compute, largest.Name, largest.Compute)
	default:
		return fmt.Errorf("no MIG instance of pool %s holds %s; the largest, %s, has %s and %d %% of the compute: ask for at most %s, "+
			"or name a pool of larger GPUs in the label %s", p.Name, asked, fitting.Name, FormatMemory(fitting.Memory), fitting.Compute,
			FormatMemory(fitting.Memory), v1alpha1.PoolLabel)
	}
}

// orByName adds that a profile can be asked for by name, with the pool's smallest as the example; "" where it cannot.
func (p *Pool) orByName() string {
	if !p.NamedProfiles {
		return ""
	}
	example := "<profile>"
	if smallest := p.smallest(func(Profile) bool { return true }); smallest != nil {
		example = smallest.Name
	}
	return ", or write nvidia.com/mig-" + example + ": 1 in place of it"
}

// smallest is the smallest profile of those that are wanted; nil where there is none.
func (p *Pool) smallest(wanted func(Profile) bool) *Profile {
	var found *Profile
	for i := range p.Profiles {
		if profile := &p.Profiles[i]; wanted(*profile) && (found == nil || bySize(*profile, *found) < 0) {
			found = profile
		}
	}
	return found
}

// largestProfile is the largest profile of those that are wanted; nil where there is none.
func (p *Pool) largestProfile(wanted func(Profile) bool) *Profile {
	var found *Profile
	for i := range p.Profiles {
		if profile := &p.Profiles[i]; wanted(*profile) && (found == nil || bySize(*profile, *found) > 0) {
			found = profile
		}
	}
	return found
}
