// SPDX-License-Identifier: Apache-2.0

// Package limits is the only writer of share files: the directory that each allocation result of a claim has on its node,
// the limits page in it and, where the limits are held inside the processes, the ledger and the bell; and of the node's
// heartbeat. It is the Go half of the contract in interceptor/include/sluice_abi.h.
//
// A page is changed in place, word by word, because running containers have mapped it; it is complete once its magic is
// there, which is written last, so a crash at any point leaves a page that grants nothing and that the next Write finishes.
package limits

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-gpu/sluice/internal/claimuid"
)

// ContainerRoot is where shares lie inside a container.
const ContainerRoot = "/run/sluice"

// LibraryDir is the directory beside the shares in which the agent keeps the library.
const LibraryDir = "lib"

// dirMode lets processes pass through to a file they were given, and list nothing.
const dirMode = 0o711

// maxIndex bounds the result index; a claim has at most 32 requests and results.
const maxIndex = 255

var (
	// ErrBadRoot says that the root directory is not one that this process may trust.
	ErrBadRoot = errors.New("share directory cannot be trusted")
	// ErrOtherDevice says that the share exists and was made for another device. The device of a share never changes:
	// remove the claim's shares first.
	ErrOtherDevice = errors.New("share was made for another device")
	// ErrBadShare says that a share cannot be written as it is.
	ErrBadShare = errors.New("share is not valid")
)

// Share is what one allocation result of a claim grants.
type Share struct {
	// ClaimUID and Index, the place of the result in the claim's allocation, are the share's identity.
	ClaimUID string
	Index    int
	// UUID is the device's, GPU-... or MIG-...; ParentUUID the physical GPU's, which may be empty for a whole GPU.
	UUID, ParentUUID string
	// MemoryLimit is what all processes of the share may hold together, in bytes; Context what one process's context
	// costs; Overhead what is charged beyond what the processes asked for.
	MemoryLimit, Context, Overhead uint64
	// ComputeShare is in hundredths of a percent of the device; 0 is best effort.
	ComputeShare uint32
	// Policy is PolicyShare or PolicyCap; Enforce holds EnforceMemory and EnforceCompute.
	Policy, Enforce uint32
}

// Door writes below one root directory. It is safe for concurrent use on different claims.
type Door struct {
	root string
}

// New makes the root directory where it is missing and checks that it is a directory of this user that others cannot
// write into.
func New(root string) (*Door, error) {
	if err := os.MkdirAll(filepath.Dir(root), 0o755); err != nil {
		return nil, fmt.Errorf("making the directory above the shares: %w", err)
	}
	if err := os.Mkdir(root, dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("making the share directory: %w", err)
	}
	info, err := os.Lstat(root)
	if err != nil {
		return nil, fmt.Errorf("looking at the share directory: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return nil, fmt.Errorf("%s is not a directory: %w", root, ErrBadRoot)
	case !ok || int(stat.Uid) != os.Geteuid():
		return nil, fmt.Errorf("%s belongs to another user: %w", root, ErrBadRoot)
	}
	// Whatever mode it had: nobody else may add a share or list the claims.
	if err := os.Chmod(root, dirMode); err != nil {
		return nil, fmt.Errorf("closing the share directory to others: %w", err)
	}
	return &Door{root: root}, nil
}

// ContainerDir is where a container finds the files of a share.
func ContainerDir(claimUID string, index int) string {
	return path.Join(ContainerRoot, claimUID, strconv.Itoa(index))
}

// Write makes the share or, where it exists, changes its figures in place, and returns its directory on the host. A share
// keeps its device for life.
func (d *Door) Write(share Share) (string, error) {
	device, parent, err := validate(share)
	if err != nil {
		return "", err
	}
	root, err := os.OpenRoot(d.root)
	if err != nil {
		return "", fmt.Errorf("opening the share directory: %w", err)
	}
	defer root.Close() //nolint:errcheck // it was only looked into
	inside := filepath.Join(share.ClaimUID, strconv.Itoa(share.Index))
	if err := makeDirs(root, share.ClaimUID, inside); err != nil {
		return "", err
	}
	err = writeFiles(root, inside, device, parent, share)
	if errors.Is(err, unix.ENOSPC) {
		// Tenants can fill the file system through the ledgers they were given.
		if err = d.Trim(); err == nil {
			err = writeFiles(root, inside, device, parent, share)
		}
	}
	if err != nil {
		return "", fmt.Errorf("writing share %d of claim %s: %w", share.Index, share.ClaimUID, err)
	}
	return filepath.Join(d.root, inside), nil
}

// Remove deletes all shares of a claim. A claim without any is no error.
func (d *Door) Remove(claimUID string) error {
	if err := validateUID(claimUID); err != nil {
		return err
	}
	root, err := os.OpenRoot(d.root)
	if err != nil {
		return fmt.Errorf("opening the share directory: %w", err)
	}
	defer root.Close() //nolint:errcheck // it was only looked into
	if err := root.RemoveAll(claimUID); err != nil {
		return fmt.Errorf("removing the shares of claim %s: %w", claimUID, err)
	}
	return nil
}

// List returns the UIDs of the claims that have a directory, complete or not, in order.
func (d *Door) List() ([]string, error) {
	entries, err := os.ReadDir(d.root)
	if err != nil {
		return nil, fmt.Errorf("listing the shares: %w", err)
	}
	uids := []string{}
	for _, entry := range entries {
		if entry.IsDir() && validateUID(entry.Name()) == nil {
			uids = append(uids, entry.Name())
		}
	}
	slices.Sort(uids)
	return uids, nil
}

// validateUID refuses what cannot name a claim's directory, the agent's own names beside them included.
func validateUID(uid string) error {
	if err := claimuid.Validate(uid); err != nil {
		return err
	}
	if uid == LibraryDir || uid == HeartbeatFile {
		return fmt.Errorf("%q is the agent's own name here: %w", uid, claimuid.ErrInvalid)
	}
	return nil
}

// validate checks a share and returns the bytes of its device's and parent's UUIDs.
func validate(share Share) (device, parent [16]byte, err error) {
	if err := validateUID(share.ClaimUID); err != nil {
		return device, parent, err
	}
	switch {
	case share.Index < 0 || share.Index > maxIndex:
		return device, parent, fmt.Errorf("result index %d is not 0 to %d: %w", share.Index, maxIndex, ErrBadShare)
	case share.ComputeShare > 10000:
		return device, parent, fmt.Errorf("compute share %d is above 10000: %w", share.ComputeShare, ErrBadShare)
	case share.Policy > PolicyCap:
		return device, parent, fmt.Errorf("policy %d is unknown: %w", share.Policy, ErrBadShare)
	case share.Enforce&^(EnforceMemory|EnforceCompute) != 0:
		return device, parent, fmt.Errorf("enforce bits %#x are unknown: %w", share.Enforce, ErrBadShare)
	}
	if device, err = uuidBytes(share.UUID); err != nil {
		return device, parent, fmt.Errorf("device of the share: %w: %w", ErrBadShare, err)
	}
	if share.ParentUUID == "" {
		return device, device, nil
	}
	if parent, err = uuidBytes(share.ParentUUID); err != nil {
		return device, parent, fmt.Errorf("parent of the share: %w: %w", ErrBadShare, err)
	}
	return device, parent, nil
}

// makeDirs makes the claim's and the share's directory. The mode is set afterwards because the umask may take from it.
func makeDirs(root *os.Root, dirs ...string) error {
	for _, dir := range dirs {
		if err := root.Mkdir(dir, dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("making the share's directory: %w", err)
		}
		if err := root.Chmod(dir, dirMode); err != nil {
			return fmt.Errorf("opening the share's directory to processes: %w", err)
		}
	}
	return nil
}

// writeFiles makes what is missing of a share and changes its page, which comes last: a complete page has all beside it.
func writeFiles(root *os.Root, dir string, device, parent [16]byte, share Share) error {
	if share.Enforce != 0 {
		if err := makeUsage(root, filepath.Join(dir, UsageFile)); err != nil {
			return err
		}
		if err := makeBell(root, dir); err != nil {
			return err
		}
	}
	return writePage(root, filepath.Join(dir, LimitsFile), device, parent, share)
}

// writePage makes or changes one page.
func writePage(root *os.Root, name string, device, parent [16]byte, share Share) (err error) {
	file, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return fmt.Errorf("opening the page: %w", err)
	}
	defer func() {
		if closed := file.Close(); err == nil && closed != nil {
			err = fmt.Errorf("closing the page: %w", closed)
		}
	}()
	if err := extend(file); err != nil {
		return err
	}
	if err := file.Chmod(0o644); err != nil {
		return fmt.Errorf("making the page readable: %w", err)
	}
	mapping, err := unix.Mmap(int(file.Fd()), 0, pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("mapping the page: %w", err)
	}
	defer func() {
		if unmapped := unix.Munmap(mapping); err == nil && unmapped != nil {
			err = fmt.Errorf("unmapping the page: %w", unmapped)
		}
	}()
	p, err := pageIn(mapping)
	if err != nil {
		return err
	}
	if !p.complete() {
		p.fill(device, parent, share)
		return nil
	}
	if p.uuid != device || p.parentUUID != parent {
		return ErrOtherDevice
	}
	p.store(share)
	return nil
}

// extend gives a new file its length by writing it: a page of a sparse file on a full file system would be SIGBUS at the
// first store.
func extend(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("looking at the page: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > pageSize {
		return fmt.Errorf("the page is no regular file of %d bytes: %w", pageSize, ErrBadShare)
	}
	if missing := pageSize - info.Size(); missing > 0 {
		if _, err := file.WriteAt(make([]byte, missing), info.Size()); err != nil {
			return fmt.Errorf("making room for the page: %w", err)
		}
	}
	return nil
}

// Root is the directory of the shares.
func (d *Door) Root() string { return d.root }
