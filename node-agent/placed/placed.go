// SPDX-License-Identifier: Apache-2.0

// Package placed keeps what the agent brings to its node in directories that are named by their content: made whole under
// another name, then renamed, and never changed while somebody may use it. An older agent's stays beside a newer one's.
package placed

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	// temporary is what is being made; a dot begins nothing that counts.
	temporary = ".new"
	// versionLength is that of a version, in hexadecimal digits.
	versionLength = 16
	// DirMode is that of all directories: processes of any user find what is in them, if they know its name.
	DirMode = 0o711
)

// File is one in a version's directory.
type File struct {
	Name string
	Data []byte
	Mode fs.FileMode
}

// VersionOf names a content.
func VersionOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])[:versionLength]
}

// IsVersion is true for a name that VersionOf could have given.
func IsVersion(name string) bool {
	return len(name) == versionLength && strings.Trim(name, "0123456789abcdef") == ""
}

// MakeDir makes a directory of versions. The mode is set afterwards because the umask may take from it.
func MakeDir(dir string) error {
	if err := os.MkdirAll(dir, DirMode); err != nil {
		return fmt.Errorf("making %s: %w", dir, err)
	}
	if err := os.Chmod(dir, DirMode); err != nil {
		return fmt.Errorf("opening %s to processes: %w", dir, err)
	}
	return nil
}

// Make writes a version beside where it is to be and renames it, in place of one that is there. Sync has it outlive a crash
// of the node.
func Make(dir, version string, sync bool, files ...File) error {
	if err := MakeDir(dir); err != nil {
		return err
	}
	beside := filepath.Join(dir, temporary)
	if err := os.RemoveAll(beside); err != nil {
		return fmt.Errorf("removing what an earlier attempt left: %w", err)
	}
	if err := MakeDir(beside); err != nil {
		return err
	}
	for _, file := range files {
		if err := write(filepath.Join(beside, file.Name), file, sync); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, version)); err != nil {
		return fmt.Errorf("removing an incomplete version: %w", err)
	}
	if err := os.Rename(beside, filepath.Join(dir, version)); err != nil {
		return fmt.Errorf("placing the version: %w", err)
	}
	return nil
}

// write makes one file.
func write(path string, file File, sync bool) error {
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, file.Mode)
	if err != nil {
		return fmt.Errorf("making a file: %w", err)
	}
	defer out.Close()
	_, err = out.Write(file.Data)
	err = errors.Join(err, out.Chmod(file.Mode))
	if sync {
		err = errors.Join(err, out.Sync())
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}
