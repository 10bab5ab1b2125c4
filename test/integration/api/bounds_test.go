// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// examples are complete valid objects: between them they hold every field that the schema bounds.
var examples = []struct{ kind, part, body string }{
	{"GPUPool", "spec", `
spec:
  nodeSelector: {matchLabels: {a: b}, matchExpressions: [{key: a, operator: Exists}]}
  gpuSelector:
    products: ["NVIDIA H100*"]
    uuids: [GPU-00000000-0000-0000-0000-000000000000]
    minors: [0]
  default: true
  sharing: {mode: Software, maxTenantsPerDevice: 8, defaultMemory: 8Gi, defaultCompute: 10, compute: Cap, memoryLimits: Driver, onViolation: Kill}
  overcommit: {memoryPercent: 150, computePercent: 200}
  tenancy:
    namespaceSelector: {matchLabels: {a: b}, matchExpressions: [{key: a, operator: Exists}]}
    quota: Required
    cohorts: [{name: c, namespaceSelector: {matchLabels: {a: b}, matchExpressions: [{key: a, operator: Exists}]}}]
    reclaimGracePeriodSeconds: 30
  rollout: {maxUnavailable: 10%, drain: Evict, gracePeriodSeconds: 60}
  excluded: [{uuid: GPU-00000000-0000-0000-0000-000000000000, reason: fan}]
  timeZone: Asia/Shanghai
  schedules:
  - name: night
    days: [Mon]
    start: "22:00"
    end: "06:00"
    leadSeconds: 600
    override:
      partitioning:
        type: MIG
        mig:
          strategy: Static
          layouts: [{name: whole, products: ["*"], minors: [0], instances: [{profile: 7g.80gb, count: 1}]}]
          keepIdleSeconds: 10
      overcommit: {memoryPercent: 150, computePercent: 200}`},
	{"GPUPool", "spec", `
spec:
  partitioning: {type: MIG, mig: {strategy: Dynamic, keepIdleSeconds: 60}}`},
	{"GPUPool", "spec", `
spec:
  partitioning:
    type: MIG
    mig:
      strategy: Static
      layouts: [{name: sevenths, products: ["*"], minors: [0], instances: [{profile: 1g.10gb, count: 7}]}]`},
	{"GPUPool", "spec", `
spec:
  sharing: {mode: TimeSlicing, timeSlice: Short}`},
	{"GPUPool", "status", `
spec: {}
status:
  observedGeneration: 1
  sharingMode: Software
  summary: 1/2 GPUs
  nodes: 1
  gpus: {held: 2, published: 1, allocated: 0, unhealthy: 1, excluded: 1}
  memory: {physical: 10Gi, published: 10Gi, allocated: 0}
  rollout: {done: 1, changing: 1, waiting: 1, refused: 1, away: 1}
  schedule: {active: night, next: day, nextChange: "2026-01-01T00:00:00Z"}
  repacking: [{profile: 1g.10gb, now: 1, afterDrain: 2}]`},
	{"GPUNode", "spec", `
spec:
  gpus:
  - {uuid: GPU-1, pool: a, partitioning: None, sharing: Software, memoryPercent: 150, computePercent: 200, maxTenants: 8, defaultMemory: 1Gi, defaultCompute: 10, compute: Cap, memoryLimits: Driver, onViolation: Kill, taint: PoolChanged,
     strategy: Static, instances: [{start: 0, profile: 1g.10gb}], keepIdleSeconds: 10, timeSlice: Short}`},
	{"GPUNode", "status", `
status:
  observedGeneration: 1
  driverVersion: 580.159.04
  products: 1 × NVIDIA H100
  summary: 1/1
  gpus:
  - uuid: GPU-1
    minor: 0
    product: NVIDIA H100
    architecture: Hopper
    memory: 80Gi
    migMode: Enabled
    instances: [{start: 0, profile: 1g.10gb, uuid: MIG-1, inUse: true, heldBy: [a/b]}]
    heldBy: [a/b]
    memoryLimits: {heldBy: Interceptor, backend: dmem, reason: LimitsRefused, message: because}
    health: {state: Suspect, reason: XID, message: because, xid: 79, since: "2026-01-01T00:00:00Z"}
    virtual: {licence: Licensed}
    tenants: 1
    published: {pool: a, partitioning: None, sharing: Software, strategy: Static, taint: PoolChanged}
    reason: Published
    message: because
  profiles:
  - {product: NVIDIA H100, name: 1g.10gb, memory: 10Gi, compute: 14, computeSlices: 1, memorySlices: 1, starts: [0], max: 7,
     engines: {decoders: 1, encoders: 1, jpeg: 1, ofa: 1}}
  violations:
  - {claimUID: c, result: 0, claim: a/b, pods: [a/b], gpu: GPU-1, reason: OverLimit, held: 2Gi, limit: 1Gi, processes: [p (1)], action: Kill,
     since: "2026-01-01T00:00:00Z"}`},
	{"GPUQuota", "spec", `
spec:
  pools: [a]
  cohort: c
  hard: {gpus: 8}
  guaranteed: {gpus: 4}
  perClaim: {default: {memory: 2Gi}, min: {memory: 1Gi}, max: {memory: 3Gi}}
  enforcement: Queue`},
	{"GPUQuota", "status", `
spec: {hard: {gpus: 8}}
status:
  observedGeneration: 1
  summary: gpus 1/8
  used: {gpus: 1}
  borrowed: {gpus: 1}
  lent: {gpus: 1}
  waiting: 1`},
	{"GPULedger", "spec", `
spec:
  namespaces:
  - name: a
    countedVersion: "7"
    counted: [{pool: p, amounts: {gpus: 1}}]
    unknown: 1
    wanted: {since: "2026-01-01T00:00:00.000000Z", until: "2026-01-01T00:01:00.000000Z", charges: [{pool: p, amounts: {gpus: 1}}]}
    movedTo: cohort-c
  reservations:
  - uid: u
    namespace: a
    name: claim
    version: "6"
    expiry: "2026-01-01T00:00:35.000000Z"
    charges: [{pool: p, amounts: {gpus: 1}}]`},
}

// breach is one way to break one bound of the schema.
type breach struct {
	path   []any // keys and indexes from the object's root
	bound  string
	reject any // what breaks the bound; remove for a field that must be there
	accept any // what just keeps it; nil where the example itself does
}

type removed struct{}

var remove = removed{}

// TestBounds breaks every bound that the schema sets, one at a time, and expects it to be refused there; and where a
// bound is a number, expects the last value within to be accepted.
func TestBounds(t *testing.T) {
	for i, example := range examples {
		whole := object(t, example.kind, fmt.Sprintf("cohort-example-%d", i), example.body)
		if example.part == "status" {
			create(t, whole)
		}
		t.Run(fmt.Sprintf("the example of %s %s is accepted", example.kind, example.part), func(t *testing.T) {
			if err := try(t, whole, example.part); err != nil {
				t.Error(err)
			}
		})
		root := schemaOf(t, example.kind).Properties[example.part]
		for _, b := range breaches(&root, whole.Object[example.part], []any{example.part}) {
			t.Run(fmt.Sprintf("%s %s: %s", example.kind, pathText(b.path), b.bound), func(t *testing.T) {
				if err := try(t, with(whole, b.path, b.reject), example.part); err == nil {
					t.Errorf("want %v refused, it was accepted", b.reject)
				} else if !strings.Contains(err.Error(), lastKey(b.path)) {
					t.Errorf("want the field named, got: %v", err)
				}
				if b.accept != nil {
					if err := try(t, with(whole, b.path, b.accept), example.part); err != nil {
						t.Errorf("want %v accepted, got: %v", b.accept, err)
					}
				}
			})
		}
	}
}

// TestExamplesHoldEveryBoundedField keeps the examples complete.
func TestExamplesHoldEveryBoundedField(t *testing.T) {
	for kind := range kinds {
		for _, part := range []string{"spec", "status"} {
			root, found := schemaOf(t, kind).Properties[part]
			if !found {
				continue
			}
			var held []string
			for _, example := range examples {
				if example.kind == kind && example.part == part {
					whole := object(t, kind, "cohort-example", example.body)
					for _, b := range breaches(&root, whole.Object[part], []any{part}) {
						held = append(held, fieldText(b.path)+": "+b.bound)
					}
				}
			}
			for _, want := range bounds(&root, []any{part}) {
				if !slices.Contains(held, want) {
					t.Errorf("no example of %s holds %s", kind, want)
				}
			}
		}
	}
}

// create stores an object without its status, for a status to belong to.
func create(t *testing.T, u *unstructured.Unstructured) {
	t.Helper()
	stored := u.DeepCopy()
	if err := shared.Client.Create(t.Context(), stored); err != nil {
		t.Fatalf("creating %s: %v", u.GetName(), err)
	}
	t.Cleanup(func() { _ = shared.Client.Delete(t.Context(), stored) })
	u.SetResourceVersion(stored.GetResourceVersion())
}

// try sends an object without storing it.
func try(t *testing.T, u *unstructured.Unstructured, part string) error {
	t.Helper()
	if part == "status" {
		return shared.Client.Status().Update(t.Context(), u.DeepCopy(), client.DryRunAll)
	}
	return shared.Client.Create(t.Context(), u.DeepCopy(), client.DryRunAll)
}

// with returns a copy of an object with another value at a path.
func with(u *unstructured.Unstructured, path []any, value any) *unstructured.Unstructured {
	changed := u.DeepCopy()
	changed.Object, _ = replaced(changed.Object, path, value).(map[string]any)
	return changed
}

func replaced(at any, path []any, value any) any {
	if len(path) == 0 {
		return value
	}
	switch container := at.(type) {
	case map[string]any:
		key, _ := path[0].(string)
		if len(path) == 1 && value == remove {
			delete(container, key)
			return container
		}
		container[key] = replaced(container[key], path[1:], value)
		return container
	case []any:
		index, _ := path[0].(int)
		container[index] = replaced(container[index], path[1:], value)
		return container
	default:
		return at
	}
}

func pathText(path []any) string {
	parts := make([]string, 0, len(path))
	for _, key := range path {
		parts = append(parts, fmt.Sprint(key))
	}
	return strings.Join(parts, ".")
}

// fieldText is a path without its indexes.
func fieldText(path []any) string {
	return pathText(slices.DeleteFunc(slices.Clone(path), func(key any) bool { _, index := key.(int); return index }))
}

func lastKey(path []any) string {
	for _, key := range slices.Backward(path) {
		if name, ok := key.(string); ok {
			return name
		}
	}
	return ""
}

// bounds lists what the schema bounds, as field: bound.
func bounds(s *apiextensions.JSONSchemaProps, path []any) []string {
	var all []string
	for _, b := range ofSchema(s, nil, path) {
		all = append(all, fieldText(b.path)+": "+b.bound)
	}
	for name, property := range s.Properties {
		if name != "conditions" { // checked by Kubernetes' own tests
			all = append(all, bounds(&property, append(slices.Clone(path), name))...)
		}
	}
	if s.Items != nil {
		all = append(all, bounds(s.Items.Schema, append(slices.Clone(path), 0))...)
	}
	return all
}

// breaches lists how each bound of a schema can be broken in a valid value.
func breaches(s *apiextensions.JSONSchemaProps, value any, path []any) []breach {
	all := ofSchema(s, value, path)
	switch v := value.(type) {
	case map[string]any:
		for name, property := range s.Properties {
			if child, found := v[name]; found && name != "conditions" {
				all = append(all, breaches(&property, child, append(slices.Clone(path), name))...)
			}
		}
	case []any:
		if len(v) > 0 && s.Items != nil {
			all = append(all, breaches(s.Items.Schema, v[0], append(slices.Clone(path), 0))...)
		}
	}
	return all
}

// ofSchema lists the breaches of one schema's own bounds.
func ofSchema(s *apiextensions.JSONSchemaProps, value any, path []any) []breach {
	var all []breach
	add := func(bound string, reject, accept any) {
		all = append(all, breach{path: path, bound: bound, reject: reject, accept: accept})
	}
	if len(s.Enum) > 0 {
		add("enum", "Bogus", nil)
	}
	if s.Minimum != nil {
		add("minimum", int64(*s.Minimum)-1, int64(*s.Minimum))
	}
	if s.Maximum != nil {
		add("maximum", int64(*s.Maximum)+1, int64(*s.Maximum))
	}
	if s.MinLength != nil {
		add("minLength", "", nil)
	}
	if s.MaxLength != nil {
		var accept any
		if s.Pattern == "" {
			accept = strings.Repeat("a", int(*s.MaxLength))
		}
		add("maxLength", strings.Repeat("a", int(*s.MaxLength)+1), accept)
	}
	if s.Pattern != "" {
		add("pattern", "#", nil)
	}
	for _, name := range s.Required {
		all = append(all, breach{path: append(slices.Clone(path), name), bound: "required", reject: remove})
	}
	all = append(all, ofCollection(s, value, path)...)
	return all
}

// ofCollection lists the breaches of the bounds of lists and maps.
func ofCollection(s *apiextensions.JSONSchemaProps, value any, path []any) []breach {
	var all []breach
	add := func(bound string, reject any) {
		all = append(all, breach{path: path, bound: bound, reject: reject})
	}
	if s.MinItems != nil {
		add("minItems", []any{})
	}
	if s.MaxItems != nil {
		add("maxItems", repeat(value, int(*s.MaxItems)+1))
	}
	if s.XListType != nil && *s.XListType != "atomic" {
		add(*s.XListType+" of distinct items", repeat(value, 2))
	}
	if s.MinProperties != nil && !hasDefault(s) { // the API server fills a defaulted field in first
		add("minProperties", map[string]any{})
	}
	if s.MaxProperties != nil {
		many := map[string]any{}
		for i := range *s.MaxProperties + 1 {
			many[fmt.Sprintf("mig/%dg.%dgb", i, i)] = int64(1)
		}
		add("maxProperties", many)
	}
	return all
}

// repeat makes a list of n times the first item.
func repeat(value any, n int) []any {
	list, _ := value.([]any)
	if len(list) == 0 {
		return nil
	}
	items := make([]any, 0, n)
	for range n {
		items = append(items, runtime.DeepCopyJSONValue(list[0]))
	}
	return items
}

func hasDefault(s *apiextensions.JSONSchemaProps) bool {
	for _, property := range s.Properties {
		if property.Default != nil {
			return true
		}
	}
	return false
}
