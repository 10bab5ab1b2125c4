// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// namespace is the one of config/.
const namespace = "sluice-system"

func TestChartAndConfigAreTheSame(t *testing.T) {
	text, err := output(programs.kubectl, "kustomize", path("config", "default"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := decode(text)
	if err != nil {
		t.Fatal(err)
	}
	// Helm makes its namespace itself.
	delete(config, key("Namespace", "", namespace))
	made := chart(t, namespace)
	// Only Helm can run something before it deletes.
	maps.DeleteFunc(made, func(_ string, object *unstructured.Unstructured) bool {
		return object.GetAnnotations()["helm.sh/hook"] != ""
	})
	if diff := cmp.Diff(keys(config), keys(made)); diff != "" {
		t.Fatalf("the chart has other objects than config/default (-config +chart):\n%s", diff)
	}
	for at, want := range config {
		if diff := cmp.Diff(plain(want), plain(made[at])); diff != "" {
			t.Errorf("%s (-config +chart):\n%s", at, diff)
		}
	}
}

func keys(all objects) []string {
	var names []string
	for at := range all {
		names = append(names, at)
	}
	slices.Sort(names)
	return names
}

// plain is an object without what Helm adds to each, and with each text's white space as one blank: YAML's writers break
// lines differently.
func plain(object *unstructured.Unstructured) map[string]any {
	object = object.DeepCopy()
	labels := object.GetLabels()
	for _, name := range []string{
		"app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart",
	} {
		delete(labels, name)
	}
	object.SetLabels(orNil(labels))
	annotations := object.GetAnnotations()
	delete(annotations, "helm.sh/resource-policy")
	object.SetAnnotations(orNil(annotations))
	squeezed, _ := squeeze(object.Object).(map[string]any)
	return squeezed
}

// orNil is nil for an empty map, which removes it from an object.
func orNil(all map[string]string) map[string]string {
	if len(all) == 0 {
		return nil
	}
	return all
}

func squeeze(value any) any {
	switch v := value.(type) {
	case string:
		return strings.Join(strings.Fields(v), " ")
	case []any:
		for i := range v {
			v[i] = squeeze(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = squeeze(v[name])
		}
	}
	return value
}
