// SPDX-License-Identifier: Apache-2.0

// Package library places libsluice.so where containers get it from: beside the shares, on the same file system, since the
// library takes only limits of its own file system for genuine. Each build has a directory named by its content, made whole
// and never changed afterwards, because processes have it mapped; it stays while a claim that was prepared with it does.
//
// Whoever calls a method that changes files holds the node's lock: two agents share the directory while one replaces the
// other.
package library

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/sluice-gpu/sluice/node-agent/limits"
	"github.com/sluice-gpu/sluice/node-agent/placed"
)

const (
	// libraryFile is the library's name in its version's directory.
	libraryFile = "libsluice.so"
	// PreloadPath is where the dynamic loader reads which libraries every program starts with.
	PreloadPath = "/etc/ld.so.preload"
	preloadFile = "ld.so.preload"
	// activeFile names the version of the node's active agent.
	activeFile = "active"
	// temporary is what is being made; a dot begins nothing that counts.
	temporary = ".new"

	fileMode = 0o644
	execMode = 0o755
)

var (
	// ErrGone says that a version is not there and that this agent does not have it.
	ErrGone = errors.New("this version of the library is not on the node any more")
	// ErrDamaged says that the files of a version are not what they were made as.
	ErrDamaged = errors.New("the placed library is damaged")
)

// Placed says where a version is. Without a Version nothing is to be mounted.
type Placed struct {
	Version string
	// File and Preload are on the host; the container has the one at ContainerFile and the other at PreloadPath.
	File, Preload, ContainerFile string
	// Heartbeat is the node's heartbeat page on the host.
	Heartbeat string
}

// Door keeps the versions below one share directory. It is safe for concurrent use.
type Door struct {
	dir    string
	share  string
	source string

	mu     sync.Mutex
	data   []byte
	own    string
	sound  bool
	leads  bool
	failed error
}

// New makes a door for the share directory. The source is the library's file as it was installed with the agent, which need
// not be there yet; "" leaves shares without the library.
func New(shareDir, source string) *Door {
	return &Door{dir: filepath.Join(shareDir, limits.LibraryDir), share: shareDir, source: source}
}

// Status is the version that new shares get, "" where the agent is to place none, and why that does not work.
func (d *Door) Status() (version string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.source == "" {
		return "", nil
	}
	if err := d.load(); err != nil {
		return "", err
	}
	return d.own, d.failed
}

// Place makes sure that a version is there and says where. "" asks for the version of new shares: the active agent's while
// that is another one, else this agent's own.
func (d *Door) Place(version string) (Placed, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if version == "" {
		if d.source == "" {
			return Placed{}, nil
		}
		if active := d.activeVersion(); active != "" {
			return d.placed(active), nil
		}
	}
	if version != "" && d.holds(version) {
		return d.placed(version), nil
	}
	if err := d.load(); err != nil {
		return Placed{}, errors.Join(err, d.gone(version))
	}
	if version != "" && version != d.own {
		return Placed{}, d.gone(version)
	}
	if d.failed = d.placeOwn(); d.failed != nil {
		return Placed{}, d.failed
	}
	return d.placed(d.own), nil
}

func (d *Door) gone(version string) error {
	if version == "" {
		return nil
	}
	return fmt.Errorf("%s in %s: %w", version, d.dir, ErrGone)
}

// Holds says whether a version is there.
func (d *Door) Holds(version string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.holds(version)
}

// Lead tells other agents of the node that this one is the active one now, whose version they place.
func (d *Door) Lead() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.leads = true
	file := filepath.Join(d.dir, activeFile)
	if d.source == "" {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("forgetting the active agent's library: %w", err)
		}
		return nil
	}
	if err := d.load(); err != nil {
		return err
	}
	if err := placed.MakeDir(d.dir); err != nil {
		return fmt.Errorf("recording the active agent's library: %w", err)
	}
	if err := os.WriteFile(file+temporary, []byte(d.own+"\n"), fileMode); err != nil {
		return fmt.Errorf("recording the active agent's library: %w", err)
	}
	if err := os.Rename(file+temporary, file); err != nil {
		return fmt.Errorf("recording the active agent's library: %w", err)
	}
	return nil
}

// Sweep removes the versions that nobody uses: not the given ones, nor this agent's or the active one's.
func (d *Door) Sweep(inUse []string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	entries, err := os.ReadDir(d.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing the versions of the library: %w", err)
	}
	keep := append(slices.Clone(inUse), d.own, d.activeVersion())
	var failed []error
	for _, entry := range entries {
		if !entry.IsDir() || slices.Contains(keep, entry.Name()) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(d.dir, entry.Name())); err != nil {
			failed = append(failed, fmt.Errorf("removing a version of the library that nobody uses: %w", err))
		}
	}
	return errors.Join(failed...)
}

// activeVersion is the version of another agent that is the node's active one, if it is there; "" otherwise.
func (d *Door) activeVersion() string {
	if d.leads {
		return ""
	}
	data, err := os.ReadFile(filepath.Join(d.dir, activeFile))
	version := strings.TrimSpace(string(data))
	if err != nil || !d.holds(version) {
		return ""
	}
	return version
}

// load reads the source once: what is placed is one build for the life of the agent, whatever happens to the file.
func (d *Door) load() error {
	if d.data != nil || d.source == "" {
		return nil
	}
	data, err := os.ReadFile(d.source)
	if err != nil {
		return fmt.Errorf("reading the library: %w", err)
	}
	if !strings.HasPrefix(string(data), "\x7fELF") {
		return fmt.Errorf("reading the library %s: it is no shared object: %w", d.source, ErrDamaged)
	}
	d.data, d.own = data, placed.VersionOf(data)
	return nil
}

func (d *Door) placed(version string) Placed {
	return Placed{
		Version: version, File: filepath.Join(d.dir, version, libraryFile), Preload: filepath.Join(d.dir, version, preloadFile),
		ContainerFile: containerFile(version), Heartbeat: filepath.Join(d.share, limits.HeartbeatFile),
	}
}

func containerFile(version string) string {
	return path.Join(limits.ContainerRoot, limits.LibraryDir, version, libraryFile)
}

// holds says whether both files of a version are there. They appear together.
func (d *Door) holds(version string) bool {
	if version == "" || version != filepath.Base(version) || strings.HasPrefix(version, ".") {
		return false
	}
	for _, file := range []string{d.placed(version).File, d.placed(version).Preload} {
		if info, err := os.Lstat(file); err != nil || !info.Mode().IsRegular() {
			return false
		}
	}
	return true
}

// placeOwn makes this agent's version, all of it under another name first, and checks it once where it was there already.
func (d *Door) placeOwn() error {
	if !d.holds(d.own) {
		if err := d.make(); err != nil {
			return err
		}
	} else if !d.sound {
		data, err := os.ReadFile(d.placed(d.own).File)
		if err != nil {
			return fmt.Errorf("checking the placed library: %w", err)
		}
		if placed.VersionOf(data) != d.own {
			return fmt.Errorf("%s: remove its directory when nothing uses it: %w", d.placed(d.own).File, ErrDamaged)
		}
	}
	d.sound = true
	return d.sameFileSystem()
}

// sameFileSystem refuses a library that would take no share for genuine.
func (d *Door) sameFileSystem() error {
	device := func(path string) (uint64, error) {
		info, err := os.Stat(path)
		if err != nil {
			return 0, fmt.Errorf("looking at %s: %w", path, err)
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return 0, fmt.Errorf("looking at %s: %w", path, errors.ErrUnsupported)
		}
		return stat.Dev, nil
	}
	library, err := device(d.placed(d.own).File)
	if err != nil {
		return err
	}
	shares, err := device(d.share)
	if err != nil {
		return err
	}
	if library != shares {
		return fmt.Errorf("%s is another file system than %s: %w", d.dir, d.share, ErrDamaged)
	}
	return nil
}

// make writes this agent's version.
func (d *Door) make() error {
	err := placed.Make(d.dir, d.own, false,
		placed.File{Name: libraryFile, Data: d.data, Mode: execMode},
		placed.File{Name: preloadFile, Data: []byte(containerFile(d.own) + "\n"), Mode: fileMode})
	if err != nil {
		return fmt.Errorf("placing the library: %w", err)
	}
	return nil
}
