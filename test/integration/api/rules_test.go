// SPDX-License-Identifier: Apache-2.0

package api

import (
	"maps"
	"slices"
	"strings"
	"testing"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	ruleName          = "a pool's name is a DNS label"
	ruleReservedName  = "a pool is not named gpu nor mig-"
	ruleMIGMode       = "with partitioning.type MIG and strategy Dynamic the sharing mode is Exclusive"
	ruleMIGTimeSlice  = "MIG instances are not shared by TimeSlicing"
	ruleOvercommit    = "exclusive devices cannot be overcommitted"
	ruleShared        = "maxTenantsPerDevice, defaultMemory and defaultCompute are for shared devices"
	ruleCompute       = "sharing.compute is for sharing.mode Software"
	ruleMemoryLimits  = "sharing.memoryLimits is for sharing.mode Software"
	ruleOnViolation   = "sharing.onViolation is for sharing.mode Software"
	ruleTimeZone      = "schedules need a timeZone"
	ruleTimeSlice     = "timeSlice is for mode TimeSlicing"
	ruleMPSTenants    = "with mode MPS maxTenantsPerDevice is at most 48"
	ruleUnavailable   = "maxUnavailable is a number of GPUs from 1"
	ruleLayouts       = "layouts are given exactly when strategy is Static"
	ruleKeepIdle      = "keepIdleSeconds is for strategy Dynamic"
	ruleExpressions   = "each of nodeSelector.matchExpressions has operator In or NotIn with values"
	ruleMIGGiven      = "mig is given exactly when type is MIG"
	ruleDefaultMemory = "defaultMemory is at least 1Mi and a whole number of Mi"
	ruleQuotaNames    = "the names are gpus, memory, compute and mig/<profile>"
	ruleQuotaSign     = "amounts are not negative"
	ruleGuaranteed    = "each guaranteed amount is named in hard too"
	ruleCohort        = "guaranteed is what others of a cohort may not keep: name the cohort too"
	ruleCohortPools   = "a quota of a cohort names its pools"
	ruleShareNames    = "the amounts of one claim are memory and compute"
	ruleMinMax        = "perClaim.min is not above perClaim.max"
	ruleDefault       = "perClaim.default is not above perClaim.max and not below perClaim.min"
	ruleTenants       = "each of namespaceSelector.matchExpressions has operator In or NotIn with values"
	ruleLedgerName    = "a ledger is named namespace-<namespace> or cohort-<cohort>"
)

// sevenths is a static layout.
const sevenths = "{strategy: Static, layouts: [{name: sevenths, instances: [{profile: 1g.10gb, count: 7}]}]}"

// ruleCases try each rule of the CRDs that is written in CEL. A case that is refused must be refused by its rule.
var ruleCases = []struct {
	name   string
	rule   string // the beginning of the rule's message
	refuse bool
	kind   string
	object string // the object's name
	body   string
}{
	{name: "a name of 52 characters is accepted", rule: ruleName, kind: "GPUPool", object: strings.Repeat("a", 52), body: "spec: {}"},
	{name: "a name of 53 characters is refused", rule: ruleName, refuse: true, kind: "GPUPool", object: strings.Repeat("a", 53), body: "spec: {}"},
	{name: "a name with a dot is refused", rule: ruleName, refuse: true, kind: "GPUPool", object: "a.b", body: "spec: {}"},
	{name: "a name that contains gpu and mig is accepted", rule: ruleReservedName, kind: "GPUPool", object: "gpu-mig-1", body: "spec: {}"},
	{name: "the name gpu is refused", rule: ruleReservedName, refuse: true, kind: "GPUPool", object: "gpu", body: "spec: {}"},
	{name: "a name that begins with mig- is refused", rule: ruleReservedName, refuse: true, kind: "GPUPool", object: "mig-1g", body: "spec: {}"},

	{name: "MIG without a mode is accepted", rule: ruleMIGMode, kind: "GPUPool", body: "spec: {partitioning: {type: MIG, mig: {}}}"},
	{name: "MIG with mode Exclusive is accepted", rule: ruleMIGMode, kind: "GPUPool", body: "spec: {partitioning: {type: MIG, mig: {strategy: Dynamic}}, sharing: {mode: Exclusive}}"},
	{name: "MIG with mode Software is refused", rule: ruleMIGMode, refuse: true, kind: "GPUPool", body: "spec: {partitioning: {type: MIG, mig: {}}, sharing: {mode: Software}}"},

	{name: "a static layout with mode Software is accepted", rule: ruleMIGMode, kind: "GPUPool", body: "spec: {partitioning: {type: MIG, mig: " + sevenths + "}, sharing: {mode: Software}}"},
	{name: "a static layout with mode MPS is accepted", rule: ruleMIGTimeSlice, kind: "GPUPool", body: "spec: {partitioning: {type: MIG, mig: " + sevenths + "}, sharing: {mode: MPS}}"},
	{name: "a static layout with mode TimeSlicing is refused", rule: ruleMIGTimeSlice, refuse: true, kind: "GPUPool", body: "spec: {partitioning: {type: MIG, mig: " + sevenths + "}, sharing: {mode: TimeSlicing}}"},

	{name: "strategy Static with layouts is accepted", rule: ruleLayouts, kind: "GPUPool", body: "spec: {partitioning: {type: MIG, mig: " + sevenths + "}}"},
	{name: "strategy Static without layouts is refused", rule: ruleLayouts, refuse: true, kind: "GPUPool", body: "spec: {partitioning: {type: MIG, mig: {strategy: Static}}}"},
	{name: "layouts without a strategy are refused, since it is Dynamic by default", rule: ruleLayouts, refuse: true, kind: "GPUPool", body: "spec: {partitioning: {type: MIG, mig: {layouts: [{name: a, instances: [{profile: 1g.10gb}]}]}}}"},
	{name: "dynamic instances may be kept idle", rule: ruleKeepIdle, kind: "GPUPool", body: "spec: {partitioning: {type: MIG, mig: {keepIdleSeconds: 60}}}"},
	{name: "the instances of a layout are not kept idle", rule: ruleKeepIdle, refuse: true, kind: "GPUPool", body: "spec: {partitioning: {type: MIG, mig: {strategy: Static, keepIdleSeconds: 60, layouts: [{name: a, instances: [{profile: 1g.10gb}]}]}}}"},

	{name: "a time slice with mode TimeSlicing is accepted", rule: ruleTimeSlice, kind: "GPUPool", body: "spec: {sharing: {mode: TimeSlicing, timeSlice: Long}}"},
	{name: "a time slice with the mode left out is refused", rule: ruleTimeSlice, refuse: true, kind: "GPUPool", body: "spec: {sharing: {timeSlice: Long}}"},
	{name: "48 tenants with MPS are accepted", rule: ruleMPSTenants, kind: "GPUPool", body: "spec: {sharing: {mode: MPS, maxTenantsPerDevice: 48}}"},
	{name: "49 tenants with MPS are refused", rule: ruleMPSTenants, refuse: true, kind: "GPUPool", body: "spec: {sharing: {mode: MPS, maxTenantsPerDevice: 49}}"},

	{name: "a number of unavailable GPUs is accepted", rule: ruleUnavailable, kind: "GPUPool", body: "spec: {rollout: {maxUnavailable: 3}}"},
	{name: "all GPUs may be unavailable", rule: ruleUnavailable, kind: "GPUPool", body: "spec: {rollout: {maxUnavailable: 100%}}"},
	{name: "no unavailable GPU is refused", rule: ruleUnavailable, refuse: true, kind: "GPUPool", body: "spec: {rollout: {maxUnavailable: 0}}"},
	{name: "0% unavailable is refused", rule: ruleUnavailable, refuse: true, kind: "GPUPool", body: "spec: {rollout: {maxUnavailable: 0%}}"},
	{name: "101% unavailable is refused", rule: ruleUnavailable, refuse: true, kind: "GPUPool", body: "spec: {rollout: {maxUnavailable: 101%}}"},
	{name: "a number in quotes is refused", rule: ruleUnavailable, refuse: true, kind: "GPUPool", body: `spec: {rollout: {maxUnavailable: "3"}}`},

	{name: "schedules with a time zone are accepted", rule: ruleTimeZone, kind: "GPUPool", body: "spec: {timeZone: UTC, schedules: [{name: a, start: '22:00', end: '06:00', override: {overcommit: {memoryPercent: 150}}}]}"},
	{name: "schedules without a time zone are refused", rule: ruleTimeZone, refuse: true, kind: "GPUPool", body: "spec: {schedules: [{name: a, start: '22:00', end: '06:00', override: {overcommit: {memoryPercent: 150}}}]}"},

	{name: "shared instances of a layout may be overcommitted", rule: ruleOvercommit, kind: "GPUPool", body: "spec: {partitioning: {type: MIG, mig: " + sevenths + "}, sharing: {mode: Software}, overcommit: {memoryPercent: 150}}"},
	{name: "shared GPUs may be overcommitted", rule: ruleOvercommit, kind: "GPUPool", body: "spec: {overcommit: {memoryPercent: 150}}"},
	{name: "100 % is no overcommit of exclusive GPUs", rule: ruleOvercommit, kind: "GPUPool", body: "spec: {sharing: {mode: Exclusive}, overcommit: {memoryPercent: 100}}"},
	{name: "exclusive GPUs with 150 % are refused", rule: ruleOvercommit, refuse: true, kind: "GPUPool", body: "spec: {sharing: {mode: Exclusive}, overcommit: {memoryPercent: 150}}"},
	{name: "MIG with 150 % compute is refused", rule: ruleOvercommit, refuse: true, kind: "GPUPool", body: "spec: {partitioning: {type: MIG, mig: {}}, overcommit: {computePercent: 150}}"},

	{name: "time slices may be bounded", rule: ruleShared, kind: "GPUPool", body: "spec: {sharing: {mode: TimeSlicing, maxTenantsPerDevice: 4}}"},
	{name: "a mode left out may be bounded", rule: ruleShared, kind: "GPUPool", body: "spec: {sharing: {defaultCompute: 0}}"},
	{name: "exclusive GPUs with a bound of tenants are refused", rule: ruleShared, refuse: true, kind: "GPUPool", body: "spec: {sharing: {mode: Exclusive, maxTenantsPerDevice: 4}}"},
	{name: "MIG with default memory is refused", rule: ruleShared, refuse: true, kind: "GPUPool", body: "spec: {partitioning: {type: MIG, mig: {}}, sharing: {defaultMemory: 8Gi}}"},
	{name: "exclusive GPUs with default compute are refused", rule: ruleShared, refuse: true, kind: "GPUPool", body: "spec: {sharing: {mode: Exclusive, defaultCompute: 1}}"},

	{name: "Software sharing with a cap of compute is accepted", rule: ruleCompute, kind: "GPUPool", body: "spec: {sharing: {mode: Software, compute: Cap}}"},
	{name: "a mode left out may cap compute", rule: ruleCompute, kind: "GPUPool", body: "spec: {sharing: {compute: Cap}}"},
	{name: "time slices with a cap of compute are refused", rule: ruleCompute, refuse: true, kind: "GPUPool", body: "spec: {sharing: {mode: TimeSlicing, compute: Cap}}"},
	{name: "exclusive GPUs with compute shares are refused", rule: ruleCompute, refuse: true, kind: "GPUPool", body: "spec: {sharing: {mode: Exclusive, compute: Share}}"},
	{name: "MIG with a cap of compute is refused", rule: ruleCompute, refuse: true, kind: "GPUPool", body: "spec: {partitioning: {type: MIG, mig: {}}, sharing: {compute: Cap}}"},

	{name: "Software sharing with memory limits by the driver is accepted", rule: ruleMemoryLimits, kind: "GPUPool", body: "spec: {sharing: {mode: Software, memoryLimits: Driver}}"},
	{name: "a mode left out may have memory limits by the driver", rule: ruleMemoryLimits, kind: "GPUPool", body: "spec: {sharing: {memoryLimits: Driver}}"},
	{name: "time slices with memory limits by the driver are refused", rule: ruleMemoryLimits, refuse: true, kind: "GPUPool", body: "spec: {sharing: {mode: TimeSlicing, memoryLimits: Driver}}"},
	{name: "MIG with memory limits by the driver is refused", rule: ruleMemoryLimits, refuse: true, kind: "GPUPool", body: "spec: {partitioning: {type: MIG, mig: {}}, sharing: {memoryLimits: Driver}}"},

	{name: "Software sharing with an answer to violations is accepted", rule: ruleOnViolation, kind: "GPUPool", body: "spec: {sharing: {mode: Software, onViolation: Evict}}"},
	{name: "a mode left out may have an answer to violations", rule: ruleOnViolation, kind: "GPUPool", body: "spec: {sharing: {onViolation: Evict}}"},
	{name: "time slices with an answer to violations are refused", rule: ruleOnViolation, refuse: true, kind: "GPUPool", body: "spec: {sharing: {mode: TimeSlicing, onViolation: Evict}}"},
	{name: "MIG with an answer to violations is refused", rule: ruleOnViolation, refuse: true, kind: "GPUPool", body: "spec: {partitioning: {type: MIG, mig: {}}, sharing: {onViolation: Evict}}"},

	{name: "every operator of a label selector is accepted", rule: ruleExpressions, kind: "GPUPool", body: "spec: {nodeSelector: {matchLabels: {a: b}, matchExpressions: [{key: a, operator: In, values: [b]}, {key: a, operator: NotIn, values: [c, d]}, {key: a, operator: Exists}, {key: a, operator: DoesNotExist, values: []}]}}"},
	{name: "an empty node selector is accepted", rule: ruleExpressions, kind: "GPUPool", body: "spec: {nodeSelector: {}}"},
	{name: "an operator in small letters is refused", rule: ruleExpressions, refuse: true, kind: "GPUPool", body: "spec: {nodeSelector: {matchExpressions: [{key: a, operator: in, values: [b]}]}}"},
	{name: "In without values is refused", rule: ruleExpressions, refuse: true, kind: "GPUPool", body: "spec: {nodeSelector: {matchExpressions: [{key: a, operator: In}]}}"},
	{name: "NotIn with an empty list is refused", rule: ruleExpressions, refuse: true, kind: "GPUPool", body: "spec: {nodeSelector: {matchExpressions: [{key: a, operator: NotIn, values: []}]}}"},
	{name: "Exists with values is refused", rule: ruleExpressions, refuse: true, kind: "GPUPool", body: "spec: {nodeSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}}"},

	{name: "type None without mig is accepted", rule: ruleMIGGiven, kind: "GPUPool", body: "spec: {partitioning: {type: None}}"},
	{name: "mig without a type is refused, since the type is None by default", rule: ruleMIGGiven, refuse: true, kind: "GPUPool", body: "spec: {partitioning: {mig: {strategy: Dynamic}}}"},
	{name: "type MIG without mig is refused", rule: ruleMIGGiven, refuse: true, kind: "GPUPool", body: "spec: {partitioning: {type: MIG}}"},

	{name: "default memory of 1Mi is accepted", rule: ruleDefaultMemory, kind: "GPUPool", body: "spec: {sharing: {defaultMemory: 1Mi}}"},
	{name: "default memory as a number of bytes is accepted", rule: ruleDefaultMemory, kind: "GPUPool", body: "spec: {sharing: {defaultMemory: 8589934592}}"},
	{name: "default memory below 1Mi is refused", rule: ruleDefaultMemory, refuse: true, kind: "GPUPool", body: "spec: {sharing: {defaultMemory: 512Ki}}"},
	{name: "default memory between two Mi is refused", rule: ruleDefaultMemory, refuse: true, kind: "GPUPool", body: "spec: {sharing: {defaultMemory: 1500Ki}}"},
	{name: "negative default memory is refused", rule: ruleDefaultMemory, refuse: true, kind: "GPUPool", body: "spec: {sharing: {defaultMemory: -8Gi}}"},
	{name: "8G is no whole number of Mi", rule: ruleDefaultMemory, refuse: true, kind: "GPUPool", body: "spec: {sharing: {defaultMemory: 8G}}"},

	{name: "every amount of a quota is accepted", rule: ruleQuotaNames, kind: "GPUQuota", body: `spec: {hard: {gpus: "8", memory: 160Gi, compute: 400, mig/1g.10gb: 4, mig/1g.10gb+me: 1}}`},
	{name: "an unknown amount is refused", rule: ruleQuotaNames, refuse: true, kind: "GPUQuota", body: "spec: {hard: {gpu: 8}}"},
	{name: "a profile in capitals is refused", rule: ruleQuotaNames, refuse: true, kind: "GPUQuota", body: "spec: {hard: {mig/1G.10GB: 8}}"},
	{name: "a guaranteed amount of an unknown name is refused", rule: ruleQuotaNames, refuse: true, kind: "GPUQuota", body: "spec: {hard: {gpus: 8}, guaranteed: {gpu: 8}}"},
	{name: "an amount of nothing is accepted", rule: ruleQuotaSign, kind: "GPUQuota", body: "spec: {hard: {gpus: 0}}"},
	{name: "a negative amount is refused", rule: ruleQuotaSign, refuse: true, kind: "GPUQuota", body: "spec: {hard: {gpus: -1}}"},
	{name: "a guarantee within the quota is accepted", rule: ruleGuaranteed, kind: "GPUQuota", body: "spec: {pools: [p], cohort: c, hard: {memory: 160Gi}, guaranteed: {memory: 163840Mi}}"},
	{name: "a guarantee above the quota is refused", rule: ruleGuaranteed, refuse: true, kind: "GPUQuota", body: "spec: {hard: {memory: 160Gi}, guaranteed: {memory: 161Gi}}"},
	{name: "a guarantee without a quota is refused", rule: ruleGuaranteed, refuse: true, kind: "GPUQuota", body: "spec: {hard: {gpus: 8}, guaranteed: {memory: 1Gi}}"},

	{name: "a guarantee in a cohort is accepted", rule: ruleCohort, kind: "GPUQuota", body: "spec: {pools: [p], cohort: c, hard: {gpus: 8}, guaranteed: {gpus: 8}}"},
	{name: "a guarantee without a cohort is refused", rule: ruleCohort, refuse: true, kind: "GPUQuota", body: "spec: {pools: [p], hard: {gpus: 8}, guaranteed: {gpus: 8}}"},
	{name: "a cohort without a guarantee is accepted", rule: ruleCohortPools, kind: "GPUQuota", body: "spec: {pools: [p], cohort: c, hard: {gpus: 8}}"},
	{name: "a cohort in all pools is refused", rule: ruleCohortPools, refuse: true, kind: "GPUQuota", body: "spec: {cohort: c, hard: {gpus: 8}}"},

	{name: "memory and compute of a claim may be bounded", rule: ruleShareNames, kind: "GPUQuota", body: "spec: {hard: {gpus: 8}, perClaim: {min: {memory: 1Gi, compute: 1}}}"},
	{name: "a number of GPUs of a claim may not be bounded", rule: ruleShareNames, refuse: true, kind: "GPUQuota", body: "spec: {hard: {gpus: 8}, perClaim: {max: {gpus: 1}}}"},
	{name: "the least of a claim may be the most", rule: ruleMinMax, kind: "GPUQuota", body: "spec: {hard: {gpus: 8}, perClaim: {min: {memory: 1Gi}, max: {memory: 1024Mi, compute: 1}}}"},
	{name: "the least of a claim is not above the most", rule: ruleMinMax, refuse: true, kind: "GPUQuota", body: "spec: {hard: {gpus: 8}, perClaim: {min: {memory: 1025Mi}, max: {memory: 1Gi}}}"},
	{name: "a default between the bounds is accepted", rule: ruleDefault, kind: "GPUQuota", body: "spec: {hard: {gpus: 8}, perClaim: {default: {memory: 2Gi, compute: 9}, min: {memory: 1Gi}, max: {memory: 2Gi}}}"},
	{name: "a default above the most is refused", rule: ruleDefault, refuse: true, kind: "GPUQuota", body: "spec: {hard: {gpus: 8}, perClaim: {default: {memory: 3Gi}, max: {memory: 2Gi}}}"},
	{name: "a default below the least is refused", rule: ruleDefault, refuse: true, kind: "GPUQuota", body: "spec: {hard: {gpus: 8}, perClaim: {default: {compute: 1}, min: {compute: 2}}}"},

	{name: "a pool chooses namespaces by labels", rule: ruleTenants, kind: "GPUPool", body: "spec: {tenancy: {namespaceSelector: {matchExpressions: [{key: a, operator: NotIn, values: [b]}]}}}"},
	{name: "a choice of namespaces that cannot be read is refused", rule: ruleTenants, refuse: true, kind: "GPUPool", body: "spec: {tenancy: {namespaceSelector: {matchExpressions: [{key: a, operator: In}]}}}"},

	{name: "the ledger of a cohort is accepted", rule: ruleLedgerName, kind: "GPULedger", object: "cohort-c", body: "spec: {}"},
	{name: "the ledger of a namespace is accepted", rule: ruleLedgerName, kind: "GPULedger", object: "namespace-" + strings.Repeat("a", 63), body: "spec: {}"},
	{name: "a ledger of another name is refused", rule: ruleLedgerName, refuse: true, kind: "GPULedger", object: "c", body: "spec: {}"},
}

func TestRules(t *testing.T) {
	for _, tc := range ruleCases {
		t.Run(tc.name, func(t *testing.T) {
			name := tc.object
			if name == "" {
				name = "try"
			}
			err := shared.Client.Create(t.Context(), object(t, tc.kind, name, tc.body), client.DryRunAll)
			switch {
			case !tc.refuse && err != nil:
				t.Errorf("want it accepted, got: %v", err)
			case tc.refuse && err == nil:
				t.Error("want it refused, it was accepted")
			case tc.refuse && !strings.Contains(err.Error(), tc.rule):
				t.Errorf("want it refused by the rule %q, got: %v", tc.rule, err)
			}
		})
	}
}

// TestEveryRuleIsTried keeps the table above complete: each rule in config/crd is tried with an object that it accepts
// and one that it refuses.
func TestEveryRuleIsTried(t *testing.T) {
	for kind := range kinds {
		messages := map[string]bool{}
		collectRules(schemaOf(t, kind), messages)
		for _, message := range slices.Sorted(maps.Keys(messages)) {
			var accepts, refuses bool
			for _, tc := range ruleCases {
				if tc.kind == kind && strings.HasPrefix(message, tc.rule) {
					accepts = accepts || !tc.refuse
					refuses = refuses || tc.refuse
				}
			}
			if !accepts || !refuses {
				t.Errorf("%s: rule %q: an accepted case: %v, a refused case: %v", kind, message, accepts, refuses)
			}
		}
	}
}

func collectRules(s *apiextensions.JSONSchemaProps, messages map[string]bool) {
	for _, rule := range s.XValidations {
		messages[rule.Message] = true
	}
	for _, property := range s.Properties {
		collectRules(&property, messages)
	}
	if s.Items != nil && s.Items.Schema != nil {
		collectRules(s.Items.Schema, messages)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		collectRules(s.AdditionalProperties.Schema, messages)
	}
}
