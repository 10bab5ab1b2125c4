// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// source says where an image's files come from.
type source struct {
	// programs is the directory of what was built for the architecture, root the machine's.
	programs, root string
	// arch is the architecture, in Go's words.
	arch string
}

// recipe says what an image is made of.
type recipe struct {
	name, program, user string
	// files lists what is in the image besides what all images have.
	files func(source) ([]file, error)
}

// file is one in an image.
type file struct {
	// path is absolute, in the image.
	path string
	data []byte
	exec bool
}

// unprivileged is the user of what needs no rights on its node.
const unprivileged = "65532:65532"

// certificates are those of the public authorities.
const certificates = "/etc/ssl/certs/ca-certificates.crt"

func recipes() []recipe {
	return []recipe{
		{name: "manager", program: "manager", user: unprivileged, files: managerFiles},
		{name: "node-agent", program: "node-agent", user: "0:0", files: agentFiles},
	}
}

// managerFiles are one static program.
func managerFiles(s source) ([]file, error) {
	program, err := s.read("manager", "/usr/bin/manager")
	if err != nil {
		return nil, err
	}
	if interpreter, _, err := needs(program.data); err != nil || interpreter != "" {
		return nil, errors.Join(err, fmt.Errorf("the manager is to be static, and wants %q", interpreter))
	}
	return []file{program}, nil
}

// agentFiles are the agent, what it places on its node, and the C library, since NVML is loaded into the agent and
// nvidia-smi is run by it.
func agentFiles(s source) ([]file, error) {
	var files []file
	for _, program := range []struct{ name, path string }{
		{name: "node-agent", path: "/usr/bin/node-agent"},
		{name: "nvidia-cdi-hook", path: "/usr/bin/nvidia-cdi-hook"},
		{name: "sluice-cdi-hook", path: "/usr/bin/sluice-cdi-hook"},
		{name: "libsluice.so", path: "/usr/lib/sluice/libsluice.so"},
	} {
		f, err := s.read(program.name, program.path)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	libraries, err := s.libraries(files[0].data)
	if err != nil {
		return nil, err
	}
	// Where names are looked up. Without it glibc asks a service that there is not.
	hosts := file{path: "/etc/nsswitch.conf", data: []byte("hosts: files dns\n")}
	return append(append(files, libraries...), hosts), nil
}

// read is a program of the architecture, at its place in the image.
func (s source) read(name, at string) (file, error) {
	data, err := os.ReadFile(filepath.Join(s.programs, name))
	if err != nil {
		return file{}, fmt.Errorf("reading a program: %w", err)
	}
	return file{path: at, data: data, exec: true}, nil
}

// build makes the image for one architecture.
func (r recipe) build(s source) (v1.Image, error) {
	files, err := r.files(s)
	if err != nil {
		return nil, err
	}
	authorities, err := os.ReadFile(filepath.Join(s.root, certificates))
	if err != nil {
		return nil, fmt.Errorf("reading the certificates of public authorities: %w", err)
	}
	files = append(files, file{path: certificates, data: authorities}, file{
		path: "/etc/passwd", data: []byte("root:x:0:0:root:/:/none\nnonroot:x:65532:65532:nonroot:/:/none\n"),
	})
	layer, err := layerOf(files)
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), layer)
	if err != nil {
		return nil, fmt.Errorf("adding the files: %w", err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", s.arch
	config.Config = v1.Config{
		User: r.user, Entrypoint: []string{path.Join("/usr/bin", r.program)}, WorkingDir: "/",
		Env:    []string{"PATH=/usr/bin", "SSL_CERT_FILE=" + certificates},
		Labels: map[string]string{"org.opencontainers.image.licenses": "Apache-2.0", "org.opencontainers.image.title": "sluice-" + r.name},
	}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return nil, fmt.Errorf("writing the configuration: %w", err)
	}
	return image, nil
}
