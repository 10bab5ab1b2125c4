// SPDX-License-Identifier: Apache-2.0

// Package api tests the schema of Sluice's kinds where it holds: on a real API server.
package api

import (
	"fmt"
	"os"
	"testing"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gpu/sluice/test/framework/cluster"
	"github.com/sluice-gpu/sluice/test/framework/stack"
)

// shared is the package's cluster. Tests only try objects out on it: nothing they send is stored, but what a status
// needs to belong to.
var shared *cluster.Cluster

func TestMain(m *testing.M) { os.Exit(cluster.Main(m, &shared)) }

// kinds are the CRDs by kind.
var kinds = map[string]string{
	"GPUPool":   "sluice.dev_gpupools.yaml",
	"GPUNode":   "sluice.dev_gpunodes.yaml",
	"GPUQuota":  "sluice.dev_gpuquotas.yaml",
	"GPULedger": "sluice.dev_gpuledgers.yaml",
}

// schemaOf is a kind's schema as config/crd says it.
func schemaOf(t *testing.T, kind string) *apiextensions.JSONSchemaProps {
	t.Helper()
	data, err := os.ReadFile(stack.Path("config", "crd", kinds[kind]))
	if err != nil {
		t.Fatalf("reading the CRD: %v", err)
	}
	var crd apiextensions.CustomResourceDefinition
	if err := yaml.Unmarshal(data, &crd); err != nil {
		t.Fatalf("decoding the CRD: %v", err)
	}
	return crd.Spec.Versions[0].Schema.OpenAPIV3Schema
}

// object makes an object of a kind from what is written below its metadata.
func object(t *testing.T, kind, name, body string) *unstructured.Unstructured {
	t.Helper()
	text := fmt.Sprintf("apiVersion: sluice.dev/v1alpha1\nkind: %s\nmetadata: {name: %q}\n%s", kind, name, body)
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatalf("decoding %s: %v", text, err)
	}
	if kind == "GPUQuota" {
		u.SetNamespace("default")
	}
	return u
}
