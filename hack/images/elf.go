// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// always are the libraries that NVIDIA's ones still name, although glibc has had all of it in libc.so.6 since 2.34.
func always() []string {
	return []string{"libc.so.6", "libpthread.so.0", "libdl.so.2", "libm.so.6", "librt.so.1"}
}

// libraryDirs are where a loader for an architecture looks without being told, and where Debian puts what a cross compiler
// links with.
func libraryDirs(arch string) ([]string, error) {
	switch arch {
	case "amd64":
		return []string{"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64"}, nil
	case "arm64":
		return []string{"/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/aarch64-linux-gnu/lib"}, nil
	default:
		return nil, fmt.Errorf("it is not known where the C library of %s is", arch)
	}
}

// libraries are the loader that a program names and all shared libraries that it and NVIDIA's libraries need.
func (s source) libraries(program []byte) ([]file, error) {
	dirs, err := libraryDirs(s.arch)
	if err != nil {
		return nil, err
	}
	interpreter, wanted, err := needs(program)
	if err != nil {
		return nil, err
	}
	if interpreter == "" {
		return nil, fmt.Errorf("the program is static, and could not load NVML")
	}
	loader := filepath.Base(interpreter)
	var files []file
	seen := []string{loader}
	for wanted = append(wanted, always()...); len(wanted) > 0; wanted = wanted[1:] {
		name := wanted[0]
		if slices.Contains(seen, name) {
			continue
		}
		seen = append(seen, name)
		f, more, err := s.find(name, dirs)
		if err != nil {
			return nil, err
		}
		files, wanted = append(files, f), append(wanted, more...)
	}
	f, _, err := s.find(loader, append(dirs, filepath.Dir(interpreter)))
	if err != nil {
		return nil, err
	}
	f.path = interpreter
	return append(files, f), nil
}

// find reads a library from where the loader will look for it, and says what that needs itself.
func (s source) find(name string, dirs []string) (file, []string, error) {
	for _, dir := range dirs {
		data, err := os.ReadFile(filepath.Join(s.root, dir, name))
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return file{}, nil, fmt.Errorf("reading a library: %w", err)
		}
		_, more, err := needs(data)
		if err != nil {
			return file{}, nil, fmt.Errorf("%s: %w", filepath.Join(dir, name), err)
		}
		// The image's loader looks in the native directories only.
		return file{path: filepath.Join(dirs[0], name), data: data, exec: true}, more, nil
	}
	return file{}, nil, fmt.Errorf("%s is in none of %s; for another architecture install its C library (Debian: libc6-%s-cross)",
		name, strings.Join(dirs, ", "), s.arch)
}

// needs says which loader a program names, "" where it is static, and which libraries it needs.
func needs(data []byte) (interpreter string, libraries []string, err error) {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return "", nil, fmt.Errorf("reading an ELF file: %w", err)
	}
	for _, part := range f.Progs {
		if part.Type == elf.PT_INTERP {
			text := make([]byte, part.Filesz)
			if _, err := part.ReadAt(text, 0); err != nil {
				return "", nil, fmt.Errorf("reading a program's loader: %w", err)
			}
			interpreter = strings.TrimRight(string(text), "\x00")
		}
	}
	if libraries, err = f.ImportedLibraries(); err != nil {
		return "", nil, fmt.Errorf("reading what an ELF file needs: %w", err)
	}
	return interpreter, libraries, nil
}
