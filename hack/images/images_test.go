// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// compile builds a C program or library into a directory; each stands for one of Sluice's.
func compile(t *testing.T, dir, name string, flags ...string) {
	t.Helper()
	source := filepath.Join(t.TempDir(), "main.c")
	if err := os.WriteFile(source, []byte("int main(void) { return 0; }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("cc", append(flags, "-o", filepath.Join(dir, name), source)...).CombinedOutput()
	if err != nil {
		t.Fatalf("compiling %s: %v\n%s", name, err, out)
	}
}

// programs makes a directory with all that the images are made of.
func programs(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), runtime.GOARCH)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	compile(t, dir, "manager", "-static")
	compile(t, dir, "node-agent")
	compile(t, dir, "nvidia-cdi-hook", "-static")
	compile(t, dir, "sluice-cdi-hook", "-static")
	compile(t, dir, "libsluice.so", "-shared", "-fPIC")
	return dir
}

// makeImages writes the images and returns where.
func makeImages(t *testing.T, dirs ...string) string {
	t.Helper()
	out := t.TempDir()
	if err := run(out, "v1", "/", dirs); err != nil {
		t.Fatal(err)
	}
	return out
}

// entries are the files of an image, with the configuration.
func entries(t *testing.T, dir string) (map[string]*tar.Header, *v1.ConfigFile) {
	t.Helper()
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("%d manifests, %v, want one", len(manifest.Manifests), err)
	}
	image, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v, want one", len(layers), err)
	}
	packed, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	found := map[string]*tar.Header{}
	for archive := tar.NewReader(packed); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return found, config
		}
		if err != nil {
			t.Fatal(err)
		}
		found["/"+strings.TrimSuffix(header.Name, "/")] = header
	}
}

func TestImages(t *testing.T) {
	out := makeImages(t, programs(t))
	cases := map[string]struct {
		user, entrypoint string
		files            []string
		libraries        bool
	}{
		"manager": {user: "65532:65532", entrypoint: "/usr/bin/manager", files: []string{"/usr/bin/manager", certificates}},
		"node-agent": {
			user: "0:0", entrypoint: "/usr/bin/node-agent", libraries: true,
			files: []string{"/usr/bin/node-agent", "/usr/bin/nvidia-cdi-hook", "/usr/bin/sluice-cdi-hook", "/usr/lib/sluice/libsluice.so", certificates},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			files, config := entries(t, filepath.Join(out, name))
			if config.Config.User != tc.user || !slices.Equal(config.Config.Entrypoint, []string{tc.entrypoint}) {
				t.Errorf("it runs %v as %s, want %s as %s", config.Config.Entrypoint, config.Config.User, tc.entrypoint, tc.user)
			}
			if config.Architecture != runtime.GOARCH || config.OS != "linux" {
				t.Errorf("it is for %s/%s", config.OS, config.Architecture)
			}
			for _, want := range tc.files {
				if files[want] == nil {
					t.Errorf("it has no %s", want)
				}
			}
			libraries := 0
			for path, header := range files {
				if header.Mode&0o022 != 0 || header.Uid != 0 || header.Gid != 0 || header.Mode&0o7000 != 0 {
					t.Errorf("%s has mode %o, user %d", path, header.Mode, header.Uid)
				}
				if slices.Contains([]string{"sh", "bash", "busybox", "apt", "dpkg"}, filepath.Base(path)) {
					t.Errorf("it has %s", path)
				}
				if strings.HasPrefix(filepath.Base(path), "lib") && path != "/lib" && path != "/lib64" && path != "/usr/lib" {
					libraries++
				}
				if header.ModTime.Unix() != 0 {
					t.Errorf("%s tells when it was made", path)
				}
			}
			if tc.libraries != (libraries > 0) {
				t.Errorf("it has %d libraries", libraries)
			}
		})
	}
}

func TestTheAgentRunsInItsImage(t *testing.T) {
	files, _ := entries(t, filepath.Join(makeImages(t, programs(t)), "node-agent"))
	for _, want := range always() {
		if !slices.ContainsFunc(keys(files), func(path string) bool { return filepath.Base(path) == want }) {
			t.Errorf("it has no %s, which NVML names", want)
		}
	}
	data, err := os.ReadFile(filepath.Join(programs(t), "node-agent"))
	if err != nil {
		t.Fatal(err)
	}
	interpreter, _, err := needs(data)
	if err != nil {
		t.Fatal(err)
	}
	if files[interpreter] == nil {
		t.Errorf("it has no %s, which loads the agent", interpreter)
	}
}

func keys(files map[string]*tar.Header) []string {
	var paths []string
	for path := range files {
		paths = append(paths, path)
	}
	return paths
}

func TestEqualProgramsGiveEqualImages(t *testing.T) {
	dir := programs(t)
	first, second := makeImages(t, dir), makeImages(t, dir)
	for _, name := range []string{"manager.tar", "node-agent.tar"} {
		a, err := os.ReadFile(filepath.Join(first, name))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(second, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("two archives %s differ", name)
		}
	}
}

func TestSeveralArchitecturesAreOneIndex(t *testing.T) {
	native := programs(t)
	other := filepath.Join(t.TempDir(), "riscv64")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	compile(t, other, "manager", "-static") // its content does not matter
	out := makeImages(t, native, other)
	index, err := layout.ImageIndexFromPath(filepath.Join(out, "manager"))
	if err != nil {
		t.Fatal(err)
	}
	top, err := index.IndexManifest()
	if err != nil || len(top.Manifests) != 1 {
		t.Fatalf("%+v, %v, want one entry", top, err)
	}
	if got := top.Manifests[0].Annotations["io.containerd.image.name"]; got != "sluice.dev/manager:v1" {
		t.Errorf("it is named %s", got)
	}
	below, err := index.ImageIndex(top.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := below.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range manifest.Manifests {
		got = append(got, m.Platform.Architecture)
	}
	if want := []string{runtime.GOARCH, "riscv64"}; !slices.Equal(got, want) {
		t.Errorf("it is for %v, want %v", got, want)
	}
	// The agent was not built for the other one, so there is one image, for this one.
	if _, config := entries(t, filepath.Join(out, "node-agent")); config.Architecture != runtime.GOARCH {
		t.Errorf("the agent's is for %s", config.Architecture)
	}
}

func TestWhatCannotBeAnImage(t *testing.T) {
	cases := map[string]struct {
		change func(t *testing.T, dir string)
		want   string
	}{
		"a manager that needs a C library": {
			change: func(t *testing.T, dir string) { t.Helper(); compile(t, dir, "manager") },
			want:   "is to be static",
		},
		"an agent that could not load NVML": {
			change: func(t *testing.T, dir string) { t.Helper(); compile(t, dir, "node-agent", "-static") },
			want:   "could not load NVML",
		},
		"an agent without its hook": {
			change: func(t *testing.T, dir string) {
				t.Helper()
				if err := os.Remove(filepath.Join(dir, "nvidia-cdi-hook")); err != nil {
					t.Fatal(err)
				}
			},
			want: "nvidia-cdi-hook",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := programs(t)
			tc.change(t, dir)
			if err := run(t.TempDir(), "v1", "/", []string{dir}); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error that says %q", err, tc.want)
			}
		})
	}
}
