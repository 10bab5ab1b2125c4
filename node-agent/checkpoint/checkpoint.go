// SPDX-License-Identifier: Apache-2.0

// Package checkpoint is the node agent's memory across restarts: which claims are prepared on which GPU, in which form
// each GPU is published, and which MIG instances of static layouts are the agent's. They are files of their own, since one
// changes with every claim and the others hardly ever. Each is replaced as a whole, so a reader sees the old record or the new one; a record that cannot be read is an error that
// names the file and never an empty state, which would hand out GPUs a second time.
package checkpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// ClaimsFile is the name of the record of claims in the state directory.
	ClaimsFile = "claims.json"
	// PublishedFile is the name of the record of published GPUs in the state directory.
	PublishedFile = "published.json"

	lockFile   = "checkpoint.lock"
	limitsLock = "limits.lock"
	dirMode    = 0o700
)

// Store reads and replaces the records of one state directory.
type Store struct {
	dir string
	// mu keeps the goroutines of this process apart, the file lock the processes; limitsMu does so for the record of limits.
	mu, limitsMu sync.Mutex
}

// Open makes the state directory if it is not there and checks that its records can be read.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return nil, fmt.Errorf("making the state directory: %w", err)
	}
	s := &Store{dir: dir}
	if _, err := s.Claims(); err != nil {
		return nil, err
	}
	if _, err := s.Published(); err != nil {
		return nil, err
	}
	if _, err := s.Made(); err != nil {
		return nil, err
	}
	if _, err := s.Limits(); err != nil {
		return nil, err
	}
	return s, nil
}

// Lock keeps every other goroutine and every other agent of the node out until the returned function is called. Whoever
// reads a record in order to change it holds it from before the read until after the write.
func (s *Store) Lock() (unlock func(), err error) { return s.lock(&s.mu, lockFile) }

func (s *Store) lock(mu *sync.Mutex, name string) (unlock func(), err error) {
	mu.Lock()
	path := filepath.Join(s.dir, name)
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		mu.Unlock()
		return nil, fmt.Errorf("opening the lock %s: %w", path, err)
	}
	for {
		err = unix.Flock(fd, unix.LOCK_EX)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		_ = unix.Close(fd)
		mu.Unlock()
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return func() {
		_ = unix.Close(fd)
		mu.Unlock()
	}, nil
}

// Claims reads the record of claims; before the first one is written it is empty.
func (s *Store) Claims() (Claims, error) {
	path := filepath.Join(s.dir, ClaimsFile)
	c := Claims{}
	written, err := read(path, &c)
	if err != nil {
		return Claims{}, err
	}
	if !written {
		return Claims{Version: Version, Claims: map[string]Claim{}}, nil
	}
	if err := c.check(); err != nil {
		return Claims{}, fmt.Errorf("%s: %w: %w", path, ErrUnreadable, err)
	}
	return c, nil
}

// SaveClaims replaces the record of claims. Once it returns, the record survives a crash of the node.
func (s *Store) SaveClaims(c Claims) error {
	c.Version = Version
	if c.Claims == nil {
		c.Claims = map[string]Claim{} // written, so that a record without the list is known to be damaged
	}
	return replace(filepath.Join(s.dir, ClaimsFile), c)
}

// Published reads the record of published GPUs; before the first one is written it is empty.
func (s *Store) Published() (Published, error) {
	p := Published{Version: Version}
	if _, err := read(filepath.Join(s.dir, PublishedFile), &p); err != nil {
		return Published{}, err
	}
	return p, nil
}

// SavePublished replaces the record of published GPUs. Once it returns, the record survives a crash of the node.
func (s *Store) SavePublished(p Published) error {
	p.Version = Version
	return replace(filepath.Join(s.dir, PublishedFile), p)
}
