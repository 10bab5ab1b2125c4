// SPDX-License-Identifier: Apache-2.0

// Package claimuid judges whether a ResourceClaim's UID may become part of a file's name. UIDs come from the API server,
// which makes them UUIDs, but the doors that write files by them run as root and take nobody's word for it.
package claimuid

import (
	"errors"
	"fmt"
	"regexp"
)

// ErrInvalid says that a UID cannot name a file.
var ErrInvalid = errors.New("not a claim UID")

// MaxLength bounds a UID; a UUID has 36 characters.
const MaxLength = 63

var form = regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`)

// Validate returns ErrInvalid unless uid is 1 to 63 letters, digits and inner dashes, which is one path component that
// is neither hidden nor a way up.
func Validate(uid string) error {
	if !form.MatchString(uid) {
		return fmt.Errorf("%q: %w: want 1 to %d letters, digits and inner dashes", uid, ErrInvalid, MaxLength)
	}
	return nil
}
