// SPDX-License-Identifier: Apache-2.0

package health

import "fmt"

// Class says what an XID, the driver's numbered error report, means for the GPU that it came from.
type Class string

const (
	// Application: what ran on the GPU made the error, or was its only victim. It never condemns the GPU.
	Application Class = "Application"
	// Notice: the driver tells something that shows in its own place: the row remapper or the recovery action.
	Notice Class = "Notice"
	// Hardware: the GPU, its firmware or its links failed. An XID that nobody knows is taken for one.
	Hardware Class = "Hardware"
	// OffBus: the GPU does not answer on the PCI bus.
	OffBus Class = "OffBus"
)

// xid is what is known of one number.
type xid struct {
	class Class
	text  string
}

// xids are those that a decision needs, from NVIDIA's public list of XIDs. Those that are not here are Hardware.
func xids() map[uint64]xid {
	return map[uint64]xid{
		13:  {Application, "graphics engine exception"},
		31:  {Application, "memory page fault"},
		43:  {Application, "the GPU stopped processing for one application"},
		45:  {Application, "channels were cleaned up after an earlier error or the end of a process"},
		68:  {Application, "video decoder exception"},
		69:  {Application, "graphics engine class error"},
		94:  {Application, "contained memory error"},
		109: {Application, "context switch timeout"},
		137: {Application, "access over NVLink that is not allowed"},

		63:  {Notice, "a memory row is to be remapped"},
		92:  {Notice, "many memory errors that were corrected"},
		154: {Notice, "the recovery action changed"},
		156: {Notice, "a resource was retired"},
		160: {Notice, "a channel was retired"},

		38:  {Hardware, "driver firmware error"},
		46:  {Hardware, "the GPU stopped processing"},
		48:  {Hardware, "double bit memory error"},
		61:  {Hardware, "breakpoint of an internal controller"},
		62:  {Hardware, "an internal controller halted"},
		64:  {Hardware, "remapping a memory row failed"},
		74:  {Hardware, "NVLink error"},
		79:  {OffBus, "the GPU has fallen off the bus"},
		95:  {Hardware, "uncontained memory error"},
		110: {Hardware, "security fault"},
		119: {Hardware, "the GPU's system processor does not answer"},
		120: {Hardware, "error of the GPU's system processor"},
		121: {Hardware, "chip-to-chip link error"},
		136: {Hardware, "link training failed"},
		140: {Hardware, "memory error that was not recovered"},
		143: {Hardware, "the GPU could not be initialized"},
		145: {Hardware, "NVLink receiver error"},
		149: {Hardware, "NVLink error"},
		157: {Hardware, "a resource could not be retired"},
		158: {Hardware, "fatal timeout of the GPU"},
	}
}

// ClassOf is the class of an XID.
func ClassOf(number uint64) Class {
	if x, known := xids()[number]; known {
		return x.class
	}
	return Hardware
}

// Describe names an XID for people.
func Describe(number uint64) string {
	if x, known := xids()[number]; known {
		return fmt.Sprintf("XID %d (%s)", number, x.text)
	}
	return fmt.Sprintf("XID %d", number)
}
