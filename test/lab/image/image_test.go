// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheSameFilesGiveTheSameArchive(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, []byte("#!"), 0o777); err != nil {
		t.Fatal(err)
	}
	spec := Spec{
		Name: "example.org/tool:1", Entrypoint: []string{"/bin/tool"},
		Files: map[string]string{"/bin/tool": program, "/etc/tool/config": program}, Links: map[string]string{"/bin/sh": "tool"},
	}
	var archives [2][]byte
	for i := range archives {
		path := filepath.Join(dir, "archive")
		if err := Write(path, spec); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		archives[i] = content
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("two archives of the same files differ")
	}
	layer := entries(t, archives[0])["layer.tar"]
	var names []string
	for name := range entries(t, layer) {
		names = append(names, name)
	}
	want := map[string]bool{"bin/": true, "bin/tool": true, "bin/sh": true, "etc/": true, "etc/tool/": true, "etc/tool/config": true}
	got := map[string]bool{}
	for _, name := range names {
		got[name] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the layer's entries differ (-want +got):\n%s", diff)
	}
}

func TestNobodyElseMayWrite(t *testing.T) {
	dir := t.TempDir()
	open := filepath.Join(dir, "open")
	if err := os.WriteFile(open, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	layer, err := Spec{Files: map[string]string{"/open": open}}.layer()
	if err != nil {
		t.Fatal(err)
	}
	header, err := tar.NewReader(bytes.NewReader(layer)).Next()
	if err != nil {
		t.Fatal(err)
	}
	if header.Mode != 0o755 {
		t.Errorf("the mode is %o, want 755", header.Mode)
	}
}

func entries(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	reader := tar.NewReader(bytes.NewReader(archive))
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		found[header.Name] = content
	}
}
