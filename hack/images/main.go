// SPDX-License-Identifier: Apache-2.0

// Command images makes Sluice's container images out of programs that were built before, without a container engine:
//
//	images --out bin/images --version dev bin/images/build/amd64 bin/images/build/arm64
//
// Each argument is a directory named like an architecture that holds the programs for it. A directory without a node-agent
// adds to the manager's image alone. Every image becomes an OCI layout, and the same layout as an archive that
// `ctr images import` reads; several architectures become one index. Nothing in them tells when or where they were made.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

// registry is where the images say that they are from.
const registry = "sluice.dev"

func main() {
	out := flag.String("out", "bin/images", "directory that the images are written to")
	version := flag.String("version", "dev", "tag of the images")
	root := flag.String("root", "/", "root below which the C library and the certificates are found")
	flag.Parse()
	if err := run(*out, *version, *root, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

// run makes both images of all architectures.
func run(out, version, root string, dirs []string) error {
	if len(dirs) == 0 {
		return fmt.Errorf("no directory of programs is given")
	}
	for _, image := range recipes() {
		var built []platformImage
		for _, dir := range dirs {
			arch := filepath.Base(filepath.Clean(dir))
			if _, err := os.Stat(filepath.Join(dir, image.program)); os.IsNotExist(err) {
				fmt.Printf("%s: there is no %s for %s\n", image.name, image.program, arch)
				continue
			}
			made, err := image.build(source{programs: dir, root: root, arch: arch})
			if err != nil {
				return fmt.Errorf("making the image %s for %s: %w", image.name, arch, err)
			}
			built = append(built, platformImage{arch: arch, image: made})
		}
		if len(built) == 0 {
			return fmt.Errorf("there is no %s to make the image %s of", image.program, image.name)
		}
		reference := registry + "/" + image.name + ":" + version
		archive, err := write(filepath.Join(out, image.name), reference, built)
		if err != nil {
			return fmt.Errorf("writing the image %s: %w", image.name, err)
		}
		fmt.Printf("%s: %s\n", reference, archive)
	}
	return nil
}
