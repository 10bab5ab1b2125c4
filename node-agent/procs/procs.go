// SPDX-License-Identifier: Apache-2.0

// Package procs gives processes of the node names that people know them by.
package procs

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
)

// Name is the command of a process and its PID, as the procfs at a path says; where that does not know the process, only
// the PID is told.
func Name(proc string, pid int) string {
	command := "process"
	if data, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "comm")); err == nil {
		if text := printable(string(data)); text != "" {
			command = text
		}
	}
	return fmt.Sprintf("%s (%d)", command, pid)
}

// printable is a command without what a process could put into it to spoil a status.
func printable(command string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return -1
		case !unicode.IsPrint(r) || r == unicode.ReplacementChar:
			return '?'
		default:
			return r
		}
	}, strings.ToValidUTF8(command, "?")))
}
