// SPDX-License-Identifier: Apache-2.0

// Package image writes archives of container images from files, without a registry or a builder: one layer, in the form that
// container runtimes import. The same files give the same archive.
package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Spec says what an image is.
type Spec struct {
	// Name is the image's, with its tag.
	Name string
	// Files are the image's files, by their path in it; Links are symbolic ones.
	Files, Links map[string]string
	// Entrypoint, Env and User are what its containers start with.
	Entrypoint []string
	Env        []string
	User       string
}

// Write writes the image's archive.
func Write(archive string, s Spec) error {
	layer, err := s.layer()
	if err != nil {
		return fmt.Errorf("making the layer of %s: %w", s.Name, err)
	}
	config, err := s.config(layer)
	if err != nil {
		return err
	}
	configName := digest(config) + ".json"
	manifest, err := json.Marshal([]map[string]any{{"Config": configName, "RepoTags": []string{s.Name}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return fmt.Errorf("encoding the manifest of %s: %w", s.Name, err)
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, file := range []struct {
		name    string
		content []byte
	}{{configName, config}, {"layer.tar", layer}, {"manifest.json", manifest}} {
		if err := add(w, file.name, 0o644, file.content); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("closing the archive: %w", err)
	}
	if err := os.WriteFile(archive, out.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing the image %s: %w", s.Name, err)
	}
	return nil
}

// layer is the file system as an archive: directories first made where files need them.
func (s Spec) layer() ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	made := map[string]bool{}
	names := make([]string, 0, len(s.Files)+len(s.Links))
	for name := range s.Files {
		names = append(names, name)
	}
	for name := range s.Links {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := parents(w, path.Clean("/"+name), made); err != nil {
			return nil, err
		}
		inside := strings.TrimPrefix(path.Clean("/"+name), "/")
		if target, ok := s.Links[name]; ok {
			header := &tar.Header{Typeflag: tar.TypeSymlink, Name: inside, Linkname: target, Mode: 0o777, ModTime: time.Unix(0, 0)}
			if err := w.WriteHeader(header); err != nil {
				return nil, fmt.Errorf("adding the link %s: %w", name, err)
			}
			continue
		}
		if err := s.addFile(w, inside, s.Files[name]); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("closing the layer: %w", err)
	}
	return out.Bytes(), nil
}

func (s Spec) addFile(w *tar.Writer, inside, source string) error {
	file, err := os.Open(source)
	if err != nil {
		return fmt.Errorf("opening a file of the image: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("looking at %s: %w", source, err)
	}
	content, err := io.ReadAll(file)
	if err != nil {
		return fmt.Errorf("reading %s: %w", source, err)
	}
	return add(w, inside, int64(info.Mode().Perm())&^0o022, content)
}

func parents(w *tar.Writer, name string, made map[string]bool) error {
	dir := path.Dir(name)
	if dir == "/" || made[dir] {
		return nil
	}
	if err := parents(w, dir, made); err != nil {
		return err
	}
	made[dir] = true
	header := &tar.Header{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(dir, "/") + "/", Mode: 0o755, ModTime: time.Unix(0, 0)}
	if err := w.WriteHeader(header); err != nil {
		return fmt.Errorf("adding the directory %s: %w", dir, err)
	}
	return nil
}

func add(w *tar.Writer, name string, mode int64, content []byte) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content)), ModTime: time.Unix(0, 0)}
	if err := w.WriteHeader(header); err != nil {
		return fmt.Errorf("adding %s: %w", name, err)
	}
	if _, err := w.Write(content); err != nil {
		return fmt.Errorf("adding %s: %w", name, err)
	}
	return nil
}

func (s Spec) config(layer []byte) ([]byte, error) {
	content, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": s.Entrypoint, "Env": s.Env, "User": s.User},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest(layer)}},
	})
	if err != nil {
		return nil, fmt.Errorf("encoding the configuration of %s: %w", s.Name, err)
	}
	return content, nil
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
