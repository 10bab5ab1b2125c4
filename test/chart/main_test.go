// SPDX-License-Identifier: Apache-2.0

// Package chart tests what the chart makes of its values, and that it makes the same objects as config/default. It needs
// helm and kubectl as programs, and no cluster.
package chart

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// programs are those that tests run.
var programs struct{ helm, kubectl string }

func TestMain(m *testing.M) {
	flag.Parse()
	if err := find(); err != nil {
		fmt.Fprintln(os.Stderr, "finding helm and kubectl (run `make test-chart`):", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// find builds helm where it is not yet, and asks the lab for kubectl.
func find() error {
	helm, err := output(path("hack", "helm.sh"))
	if err != nil {
		return err
	}
	binaries, err := output(path("bin", "lab"), "build")
	if err != nil {
		return err
	}
	programs.helm, programs.kubectl = strings.TrimSpace(helm), filepath.Join(strings.TrimSpace(binaries), "kubectl")
	return nil
}

// path is one in the clone.
func path(parts ...string) string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(append([]string{filepath.Dir(file), "..", ".."}, parts...)...)
}

func output(program string, args ...string) (string, error) {
	var out, trouble bytes.Buffer
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = &out, &trouble
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", filepath.Base(program), strings.Join(args, " "), err, trouble.String())
	}
	return out.String(), nil
}

// render is the chart with the values, as `--set-json` takes them.
func render(namespace string, values ...string) (objects, error) {
	args := []string{"template", "sluice", path("charts", "sluice"), "--namespace", namespace}
	for _, value := range values {
		args = append(args, "--set-json", value)
	}
	text, err := output(programs.helm, args...)
	if err != nil {
		return nil, err
	}
	return decode(text)
}

// chart is the rendered chart, which has to be good.
func chart(t *testing.T, namespace string, values ...string) objects {
	t.Helper()
	made, err := render(namespace, values...)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// objects are by kind, namespace and name.
type objects map[string]*unstructured.Unstructured

// key of an object.
func key(kind, namespace, name string) string { return kind + " " + namespace + "/" + name }

var separator = regexp.MustCompile(`(?m)^---.*$`)

func decode(text string) (objects, error) {
	found := objects{}
	for _, document := range separator.Split(text, -1) {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			return nil, fmt.Errorf("decoding an object: %w\n%s", err, document)
		}
		if len(object.Object) == 0 {
			continue
		}
		at := key(object.GetKind(), object.GetNamespace(), object.GetName())
		if found[at] != nil {
			return nil, errors.New("two objects are " + at)
		}
		found[at] = object
	}
	return found, nil
}
