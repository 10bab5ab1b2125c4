// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/sluice-gpu/sluice/internal/gpu"
)

const mebibyte = 1 << 20

// boardProfile is a profile together with what NVML wants to be asked with.
type boardProfile struct {
	gpu.Profile
	info nvml.GpuInstanceProfileInfo
}

// unsupported says whether a call's answer means that the board or the library has no such thing.
func unsupported(ret nvml.Return) bool {
	switch ret {
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_FUNCTION_NOT_FOUND,
		nvml.ERROR_ARGUMENT_VERSION_MISMATCH:
		return true
	default:
		return false
	}
}

// readProfiles asks for every profile NVML knows, whether MIG mode is on or not; a board without MIG has none.
func (d *Door) readProfiles(device nvml.Device) ([]boardProfile, error) {
	var profiles []boardProfile
	for id := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		info, ret := device.GetGpuInstanceProfileInfo(id)
		if unsupported(ret) {
			continue
		}
		if err := failed("nvmlDeviceGetGpuInstanceProfileInfo", ret); err != nil {
			return nil, fmt.Errorf("reading MIG profile %d: %w", id, err)
		}
		placements, ret := device.GetGpuInstancePossiblePlacements(&info)
		if err := failed("nvmlDeviceGetGpuInstancePossiblePlacements", ret); err != nil {
			return nil, fmt.Errorf("reading the placements of MIG profile %d: %w", id, err)
		}
		// A profile that can be placed nowhere cannot be had; one that must have no instance cannot be walked.
		if len(placements) == 0 || info.InstanceCount == 0 {
			continue
		}
		profiles = append(profiles, boardProfile{Profile: profileOf(id, info, placements), info: info})
	}
	if err := d.nameProfiles(device, profiles); err != nil {
		return nil, err
	}
	return profiles, nil
}

// profileOf translates what NVML says of a profile; the name comes later, because it depends on the whole board.
func profileOf(id int, info nvml.GpuInstanceProfileInfo, placements []nvml.GpuInstancePlacement) gpu.Profile {
	p := gpu.Profile{
		ID:            id,
		MemoryBytes:   int64(info.MemorySizeMB) * mebibyte,
		ComputeSlices: int(info.SliceCount),
		MemorySlices:  int(placements[0].Size),
		Max:           int(info.InstanceCount),
		Decoders:      int(info.DecoderCount),
		Encoders:      int(info.EncoderCount),
		JPEG:          int(info.JpegCount),
		OFA:           int(info.OfaCount),
	}
	for _, placement := range placements {
		p.Starts = append(p.Starts, int(placement.Start))
	}
	slices.Sort(p.Starts)
	return p
}

// nameProfiles gives each profile the driver's own name for it and, where the driver does not say, the one that its tools
// would print.
func (d *Door) nameProfiles(device nvml.Device, profiles []boardProfile) error {
	named := d.has("nvmlDeviceGetGpuInstanceProfileInfoV")
	for i := range profiles {
		p := &profiles[i]
		if named {
			info, ret := device.GetGpuInstanceProfileInfoV(p.ID).V2()
			if !unsupported(ret) && ret != nvml.SUCCESS {
				return fmt.Errorf("reading the name of MIG profile %d: %w", p.ID, failed("nvmlDeviceGetGpuInstanceProfileInfoV", ret))
			}
			if ret == nvml.SUCCESS {
				p.Name = strings.TrimPrefix(text(info.Name[:]), "MIG ")
			}
		}
		if p.Name == "" {
			total, err := d.totalMemory(device)
			if err != nil {
				return err
			}
			p.Name = profileName(p.Profile, memorySlices(profiles), total)
		}
	}
	return nil
}

// profileName is <compute slices>g.<memory>gb and a suffix. The memory is the profile's slices of the board's, both in
// whole GiB as the board is sold, which is more than an instance has.
func profileName(p gpu.Profile, boardSlices int, boardMemory uint64) string {
	board := math.Ceil(float64(boardMemory) / (1 << 30))
	memory := math.Round(board * float64(p.MemorySlices) / float64(boardSlices))
	return fmt.Sprintf("%dg.%dgb%s", p.ComputeSlices, int(memory), profileSuffix(p.ID))
}

// profileSuffix tells apart the profiles of one size.
func profileSuffix(id int) string {
	switch id {
	case nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1, nvml.GPU_INSTANCE_PROFILE_2_SLICE_REV1:
		return "+me"
	case nvml.GPU_INSTANCE_PROFILE_1_SLICE_GFX, nvml.GPU_INSTANCE_PROFILE_2_SLICE_GFX,
		nvml.GPU_INSTANCE_PROFILE_3_SLICE_GFX, nvml.GPU_INSTANCE_PROFILE_4_SLICE_GFX:
		return "+gfx"
	case nvml.GPU_INSTANCE_PROFILE_1_SLICE_NO_ME, nvml.GPU_INSTANCE_PROFILE_2_SLICE_NO_ME:
		return "-me"
	case nvml.GPU_INSTANCE_PROFILE_1_SLICE_ALL_ME, nvml.GPU_INSTANCE_PROFILE_2_SLICE_ALL_ME:
		return "+me.all"
	default:
		return ""
	}
}

// memorySlices is how many slices the board's memory divides into: the end of the placement that reaches farthest.
func memorySlices(profiles []boardProfile) int {
	end := 0
	for _, p := range profiles {
		end = max(end, slices.Max(p.Starts)+p.MemorySlices)
	}
	return end
}

// computeSlices is how many compute slices the board divides into: those of its largest profile.
func computeSlices(profiles []boardProfile) int {
	most := 0
	for _, p := range profiles {
		most = max(most, p.ComputeSlices)
	}
	return most
}

// errNoComputeProfile says that no compute instance fills a GPU instance of this size.
var errNoComputeProfile = errors.New("no compute instance profile of this size")

// computeProfile is the constant of the compute instance that fills a GPU instance of so many slices. There are others of
// the same size (1_SLICE_REV1, 7_SLICE_NVL) which are something else.
func computeProfile(sliceCount int) (int, error) {
	switch sliceCount {
	case 1:
		return nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE, nil
	case 2:
		return nvml.COMPUTE_INSTANCE_PROFILE_2_SLICE, nil
	case 3:
		return nvml.COMPUTE_INSTANCE_PROFILE_3_SLICE, nil
	case 4:
		return nvml.COMPUTE_INSTANCE_PROFILE_4_SLICE, nil
	case 6:
		return nvml.COMPUTE_INSTANCE_PROFILE_6_SLICE, nil
	case 7:
		return nvml.COMPUTE_INSTANCE_PROFILE_7_SLICE, nil
	case 8:
		return nvml.COMPUTE_INSTANCE_PROFILE_8_SLICE, nil
	default:
		return 0, fmt.Errorf("%d slices: %w", sliceCount, errNoComputeProfile)
	}
}

// text is a C string in a fixed array.
func text(array []int8) string {
	var out strings.Builder
	for _, c := range array {
		if c == 0 {
			break
		}
		out.WriteByte(byte(c))
	}
	return out.String()
}
