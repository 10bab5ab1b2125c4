// SPDX-License-Identifier: Apache-2.0

// Package product compares product names with the patterns that users write.
package product

import "strings"

// Matches says whether a pattern, in which * stands for any characters, matches all of a product's name, as NVML gives it
// or with hyphens for its spaces, as node labels spell it.
func Matches(pattern, name string) bool {
	return matches(pattern, name) || matches(pattern, strings.ReplaceAll(name, " ", "-"))
}

func matches(pattern, text string) bool {
	head, pattern, star := strings.Cut(pattern, "*")
	rest, found := strings.CutPrefix(text, head)
	if !star || !found {
		return found && rest == ""
	}
	for {
		part, after, more := strings.Cut(pattern, "*")
		if !more {
			return strings.HasSuffix(rest, part)
		}
		at := strings.Index(rest, part)
		if at < 0 {
			return false
		}
		rest, pattern = rest[at+len(part):], after
	}
}
