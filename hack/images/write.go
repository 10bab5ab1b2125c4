// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// platformImage is an image for one architecture.
type platformImage struct {
	arch  string
	image v1.Image
}

func (p platformImage) descriptor() v1.Descriptor {
	return v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: p.arch}}
}

// write puts an image into a layout directory, replacing what was there, and packs that into an archive beside it.
func write(dir, reference string, images []platformImage) (archive string, err error) {
	if err := os.RemoveAll(dir); err != nil {
		return "", fmt.Errorf("removing the earlier image: %w", err)
	}
	at, err := layout.Write(dir, mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	if err != nil {
		return "", fmt.Errorf("making the layout: %w", err)
	}
	// The first is containerd's, the second everybody's.
	named := layout.WithAnnotations(map[string]string{
		"io.containerd.image.name": reference, "org.opencontainers.image.ref.name": reference,
	})
	if len(images) == 1 {
		platform := layout.WithPlatform(*images[0].descriptor().Platform)
		err = at.AppendImage(images[0].image, named, platform)
	} else {
		index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
		for _, image := range images {
			index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image.image, Descriptor: image.descriptor()})
		}
		err = at.AppendIndex(index, named)
	}
	if err != nil {
		return "", fmt.Errorf("writing the layout: %w", err)
	}
	archive = dir + ".tar"
	if err := pack(dir, archive); err != nil {
		return "", fmt.Errorf("packing the layout: %w", err)
	}
	return archive, nil
}

// pack writes a directory into an archive, in the order of names.
func pack(dir, archive string) error {
	out, err := os.Create(archive)
	if err != nil {
		return err
	}
	defer out.Close()
	packed := tar.NewWriter(out)
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if err := packed.WriteHeader(header(name, tar.TypeReg, int64(len(data)), 0o644)); err != nil {
			return err
		}
		_, err = packed.Write(data)
		return err
	})
	if err != nil {
		return err
	}
	if err := packed.Close(); err != nil {
		return err
	}
	return out.Close()
}
