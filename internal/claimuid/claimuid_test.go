// SPDX-License-Identifier: Apache-2.0

package claimuid_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/sluice-gpu/sluice/internal/claimuid"
)

func TestValidate(t *testing.T) {
	for _, tc := range []struct {
		name string
		uid  string
		want error
	}{
		{name: "a UUID is a UID", uid: "0c5c7c0e-5b8f-4c53-9c7d-3a6f1d2b9e01"},
		{name: "one character is a UID", uid: "a"},
		{name: "63 characters are a UID", uid: strings.Repeat("a", 63)},
		{name: "64 characters are refused", uid: strings.Repeat("a", 64), want: claimuid.ErrInvalid},
		{name: "an empty UID is refused", uid: "", want: claimuid.ErrInvalid},
		{name: "the way up is refused", uid: "..", want: claimuid.ErrInvalid},
		{name: "a slash is refused", uid: "a/b", want: claimuid.ErrInvalid},
		{name: "a leading dash is refused", uid: "-rf", want: claimuid.ErrInvalid},
		{name: "a trailing dash is refused", uid: "a-", want: claimuid.ErrInvalid},
		{name: "a trailing newline is refused", uid: "a\n", want: claimuid.ErrInvalid},
		{name: "a null byte is refused", uid: "a\x00b", want: claimuid.ErrInvalid},
		{name: "a dot is refused", uid: "a.b", want: claimuid.ErrInvalid},
		{name: "letters outside ASCII are refused", uid: "ä", want: claimuid.ErrInvalid},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := claimuid.Validate(tc.uid); !errors.Is(got, tc.want) {
				t.Errorf("Validate(%q) = %v, want %v", tc.uid, got, tc.want)
			}
		})
	}
}
