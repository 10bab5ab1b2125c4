// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// values are what the placeholders in an agent's command stand for.
func (s *State) values() map[string]string {
	p := s.Paths
	return map[string]string{
		"node": s.Spec.Name, "kubeconfig": p.Kubeconfig, "dir": p.Dir, "kubelet": p.Kubelet,
		"plugins": p.Plugins, "registry": p.Registry, "run": p.Run, "cdi": p.CDI,
		"driver-root": p.DriverRoot, "gpu-state": p.GPUState,
	}
}

// Placeholders lists the names that may stand in double braces in an agent's command.
func Placeholders() []string {
	var names []string
	for name := range (&State{}).values() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// substitute replaces the placeholders in words; an unknown one is an error.
func substitute(words []string, values map[string]string) ([]string, error) {
	placeholder := regexp.MustCompile(`\{\{([^{}]*)\}\}`)
	var errs []error
	replaced := make([]string, 0, len(words))
	for _, word := range words {
		replaced = append(replaced, placeholder.ReplaceAllStringFunc(word, func(match string) string {
			name := strings.TrimSpace(match[2 : len(match)-2])
			value, ok := values[name]
			if !ok {
				errs = append(errs, fmt.Errorf("%s in the agent's command stands for nothing: the placeholders are %s",
					match, strings.Join(Placeholders(), ", ")))
			}
			return value
		}))
	}
	return replaced, errors.Join(errs...)
}
