// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// layerOf packs files so that equal files give equal bytes: in order, of one time, root's, writable by nobody else.
func layerOf(files []file) (v1.Layer, error) {
	var packed bytes.Buffer
	archive := tar.NewWriter(&packed)
	entries := slices.Clone(files)
	slices.SortFunc(entries, func(a, b file) int { return strings.Compare(a.path, b.path) })
	for _, dir := range directories(entries) {
		if err := archive.WriteHeader(header(dir+"/", tar.TypeDir, 0, 0o755)); err != nil {
			return nil, fmt.Errorf("packing %s: %w", dir, err)
		}
	}
	for _, f := range entries {
		mode := int64(0o644)
		if f.exec {
			mode = 0o755
		}
		if err := archive.WriteHeader(header(f.path, tar.TypeReg, int64(len(f.data)), mode)); err != nil {
			return nil, fmt.Errorf("packing %s: %w", f.path, err)
		}
		if _, err := archive.Write(f.data); err != nil {
			return nil, fmt.Errorf("packing %s: %w", f.path, err)
		}
	}
	if err := archive.Close(); err != nil {
		return nil, fmt.Errorf("packing the files: %w", err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(packed.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("compressing the files: %w", err)
	}
	return layer, nil
}

// header is that of an entry, without anything about the machine that packs it.
func header(name string, kind byte, size, mode int64) *tar.Header {
	return &tar.Header{
		Typeflag: kind, Name: strings.TrimPrefix(name, "/"), Size: size, Mode: mode, ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR,
	}
}

// directories are all those above the files, outer ones first.
func directories(files []file) []string {
	var dirs []string
	for _, f := range files {
		for dir := path.Dir(f.path); dir != "/"; dir = path.Dir(dir) {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}
