// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// HealthState says whether a GPU can be trusted with work.
// +kubebuilder:validation:Enum=Healthy;Suspect;Lost
type HealthState string

const (
	// HealthHealthy: nothing is known against the GPU.
	HealthHealthy HealthState = "Healthy"
	// HealthSuspect: the GPU takes no new tenants; those that it has go on.
	HealthSuspect HealthState = "Suspect"
	// HealthLost: the hardware does not answer any more; what runs on it is lost with it.
	HealthLost HealthState = "Lost"
)

// Reasons of a GPU's health. The agent gives the one that matters most.
const (
	// HealthReasonHealthy: nothing is known against the GPU.
	HealthReasonHealthy = "Healthy"
	// HealthReasonXID: the driver reported an error of the hardware; xid has its number.
	HealthReasonXID = "XID"
	// HealthReasonECC: memory has errors that could not be corrected.
	HealthReasonECC = "UncorrectableECC"
	// HealthReasonRowRemapPending: bad memory is replaced by spare rows at the GPU's next reset.
	HealthReasonRowRemapPending = "RowRemapPending"
	// HealthReasonRowRemapFailed: there are no spare rows left for bad memory.
	HealthReasonRowRemapFailed = "RowRemapFailed"
	// HealthReasonOffBus: the GPU does not answer on the PCI bus.
	HealthReasonOffBus = "OffBus"
	// HealthReasonNVMLHangs: calls to NVML about the GPU do not return.
	HealthReasonNVMLHangs = "NVMLHangs"
	// HealthReasonThermalBrake: the hardware slows the GPU down because it is too hot.
	HealthReasonThermalBrake = "ThermalBrake"
	// HealthReasonPowerBrake: the power supply has the hardware slow the GPU down.
	HealthReasonPowerBrake = "PowerBrake"
	// HealthReasonRecoveryNeeded: the driver asks for a reset of the GPU or a reboot of the node.
	HealthReasonRecoveryNeeded = "RecoveryNeeded"
)

// GPUHealth says how a GPU is. All MIG instances of a GPU share its health.
type GPUHealth struct {
	// state is Healthy, Suspect (no new tenants) or Lost (the hardware does not answer any more).
	// +required
	State HealthState `json:"state,omitempty"`

	// reason says in one word what is wrong: XID, UncorrectableECC, RowRemapPending, OffBus, ...
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`

	// message says in a sentence what is wrong and what to do. Unset where nothing is.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`

	// xid is the number of the driver's error report, 1 to 65535; unset where there is none.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	XID int32 `json:"xid,omitempty"`

	// since is when the GPU came into this state.
	// +required
	Since *metav1.Time `json:"since,omitempty"`
}

// LicenceState is what the driver says of a virtual GPU's licence.
// +kubebuilder:validation:Enum=Licensed;Unlicensed;Unknown
type LicenceState string

const (
	// LicenceLicensed: the virtual GPU is licensed and runs at full speed.
	LicenceLicensed LicenceState = "Licensed"
	// LicenceUnlicensed: there is no licence; the driver slows the virtual GPU down.
	LicenceUnlicensed LicenceState = "Unlicensed"
	// LicenceUnknown: the driver does not say.
	LicenceUnknown LicenceState = "Unknown"
)

// VirtualGPU says what is known of a GPU that a hypervisor gives to the node.
type VirtualGPU struct {
	// licence is Licensed, Unlicensed or Unknown.
	// +required
	Licence LicenceState `json:"licence,omitempty"`
}
