// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

var (
	// ErrNotFound says that the NVML library is not where it was looked for: there is no NVIDIA driver, or its root is
	// configured wrongly.
	ErrNotFound = errors.New("NVML library not found")
	// ErrFailed says that NVML as a whole does not answer: its driver is not loaded, or library and driver differ.
	ErrFailed = errors.New("NVML failed")
	// ErrSick says that single GPUs did not answer. What came with the error is right for all others.
	ErrSick = errors.New("GPU does not answer")
	// ErrLost says that the driver does not reach a GPU any more.
	ErrLost = errors.New("GPU is lost")
	// ErrGPUNotFound says that no GPU has the UUID.
	ErrGPUNotFound = errors.New("no GPU with this UUID")
	// ErrInUse says that a process holds what was to be changed. Retrying helps once it has gone.
	ErrInUse = errors.New("in use")
	// ErrNoRoom says that the placement, or part of it, is taken by another instance.
	ErrNoRoom = errors.New("placement is taken")
	// ErrBadPlacement says that the GPU has no such profile or that the profile cannot start there.
	ErrBadPlacement = errors.New("GPU has no such placement")
	// ErrMIGUnsupported says that the board or its driver has no MIG.
	ErrMIGUnsupported = errors.New("MIG is not supported")
	// ErrResetRequired says that a MIG mode was accepted and only takes effect at the next reset of the GPU.
	ErrResetRequired = errors.New("GPU reset required")
)

// CallError is NVML's answer to one call that failed.
type CallError struct {
	// Call is the function's name.
	Call string
	// Return is the nvmlReturn_t.
	Return int
	// Text is NVML's own sentence for it.
	Text string
}

// Error says which call failed and how.
func (e *CallError) Error() string {
	return fmt.Sprintf("%s: %s (%d)", e.Call, e.Text, e.Return)
}

// Is makes the answers that steer the agent comparable with this package's errors.
func (e *CallError) Is(target error) bool {
	switch nvml.Return(e.Return) {
	case nvml.ERROR_IN_USE:
		return target == ErrInUse
	case nvml.ERROR_INSUFFICIENT_RESOURCES:
		return target == ErrNoRoom
	case nvml.ERROR_RESET_REQUIRED:
		return target == ErrResetRequired
	case nvml.ERROR_GPU_IS_LOST, nvml.ERROR_GPU_NOT_FOUND:
		return target == ErrLost
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return target == ErrNotFound
	default:
		return false
	}
}

// failed is the error of a call, nil where it succeeded.
func failed(call string, ret nvml.Return) error {
	if ret == nvml.SUCCESS {
		return nil
	}
	return &CallError{Call: call, Return: int(ret), Text: ret.String()}
}

// SickGPUError says which GPU did not answer and why. It is an ErrSick.
type SickGPUError struct {
	// Index is NVML's; UUID is empty where even that could not be read.
	Index int
	UUID  string
	Err   error
}

// Error names the GPU and the reason.
func (e *SickGPUError) Error() string {
	if e.UUID == "" {
		return fmt.Sprintf("GPU %d: %v", e.Index, e.Err)
	}
	return fmt.Sprintf("GPU %d (%s): %v", e.Index, e.UUID, e.Err)
}

// Is makes every SickGPUError an ErrSick.
func (e *SickGPUError) Is(target error) bool { return target == ErrSick }

// Unwrap is the reason.
func (e *SickGPUError) Unwrap() error { return e.Err }
