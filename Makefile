# SPDX-License-Identifier: Apache-2.0
#
# Every job of the project is a target here; `make help` lists them. What a job needs beyond Go, gcc, make and git
# is built from Go modules at the versions pinned in go.mod, hack/tools, hack/lint and test/lab.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# The go command uses all cores by itself; jobs one after another keep the output readable.
.NOTPARALLEL:

GO ?= go
# Where binaries go.
BIN ?= bin
# Extra flags for every `go test`, such as -race or -v.
GOTESTFLAGS ?=
# Only tests, or benchmarks, whose names match.
RUN ?=
BENCH ?= .
# Tag of the images, and the architectures that they are made for; see docs/development.md for others than this machine's.
VERSION ?= dev
ARCHES ?= $(shell $(GO) env GOARCH)
# Longest time one integration package may take.
INTEGRATION_TIMEOUT ?= 60m

# Without this, builds in a clone that another user owns fail; versions are not read from version control.
export GOFLAGS := $(strip $(GOFLAGS) -buildvcs=false)

CONTROLLER_GEN := $(GO) tool -modfile=hack/tools/go.mod controller-gen
# The lab compiles Kubernetes once; the same flags everywhere let its tests and lint use the same compiled packages.
LAB_ENV := CGO_ENABLED=0 GOFLAGS="$(GOFLAGS) -trimpath"
# Everything but what needs a running control plane, and the library's tests, some of which take the time.
UNIT_PACKAGES = $$($(GO) list ./... | grep -v -e /test/integration -e /test/e2e -e /test/demo -e /test/interceptor -e /test/chart)

##@ General

.PHONY: help
help: ## Show this list.
	@awk 'BEGIN {FS = ":.*## "; print "Usage: make <target>"} \
	  /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z][a-z0-9-]*:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: build fakegpu lab ## Bring up a local cluster with simulated GPU nodes and show the main job; it stays up.
	$(GO) run ./test/demo up

.PHONY: demo-down
demo-down: ## Remove what `make demo` brought up.
	$(GO) run ./test/demo down

.PHONY: test
test: test-unit test-rules test-fakegpu test-interceptor test-lab test-chart test-integration ## Run all tests, the quick ones first.

##@ Build

.PHONY: build
build: interceptor ## Build the manager (static), the node agent and the CDI hooks, ours and NVIDIA's, into bin/, and the library.
	CGO_ENABLED=0 $(GO) build -o $(BIN)/manager ./cmd/manager
	$(GO) build -o $(BIN)/node-agent ./cmd/node-agent
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags='-s -w' -o $(BIN)/sluice-cdi-hook ./cmd/sluice-cdi-hook
	$(GO) build -o $(BIN)/nvidia-cdi-hook github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-cdi-hook

.PHONY: interceptor
interceptor: ## Build the library that holds shares inside processes, interceptor/build/libsluice.so.
	$(MAKE) -C interceptor

.PHONY: fakegpu
fakegpu: ## Build the fake GPU (libcuda, libnvidia-ml, CLI) into test/fakegpu/build/.
	$(MAKE) -C test/fakegpu

.PHONY: images
images: $(addprefix image-programs-,$(ARCHES)) ## Make the container images in bin/images (VERSION=dev ARCHES="amd64 arm64"), without a container engine.
	cd hack/images && $(GO) run . --out $(abspath $(BIN))/images --version $(VERSION) $(addprefix $(abspath $(BIN))/images/build/,$(ARCHES))

# Programs in an image are stripped, and tell nothing of where they were built. What needs cgo is built for this machine's
# architecture, and for another one where CC_<architecture> names a C compiler for it. The hooks are run on the node, whatever
# C library that has, so they bring their own: they load nothing.
image-programs-%: IMAGE_GO = GOARCH=$* $(GO) build -trimpath -ldflags '-s -w'
image-programs-%: IMAGE_DIR = $(BIN)/images/build/$*
image-programs-%: IMAGE_CC = $(or $(CC_$*),$(if $(filter $*,$(shell $(GO) env GOHOSTARCH)),$(CC)))
image-programs-%:
	mkdir -p $(IMAGE_DIR)
	CGO_ENABLED=0 $(IMAGE_GO) -o $(IMAGE_DIR)/manager ./cmd/manager
	CGO_ENABLED=0 $(IMAGE_GO) -o $(IMAGE_DIR)/sluice-cdi-hook ./cmd/sluice-cdi-hook
	if [[ -n '$(IMAGE_CC)' ]]; then \
	  export CGO_ENABLED=1 CC='$(IMAGE_CC)'; \
	  $(IMAGE_GO) -o $(IMAGE_DIR)/node-agent ./cmd/node-agent; \
	  GOARCH=$* $(GO) build -trimpath -tags netgo,osusergo -ldflags "-s -w -linkmode external -extldflags '-static -w'" \
	    -o $(IMAGE_DIR)/nvidia-cdi-hook github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-cdi-hook; \
	  $(MAKE) -C interceptor B=$(abspath $(IMAGE_DIR))/interceptor CFLAGS=-O2 CC='$(IMAGE_CC)'; \
	  cp $(IMAGE_DIR)/interceptor/libsluice.so $(IMAGE_DIR)/; \
	fi

.PHONY: lab
lab: ## Build the local control plane; minutes when its cache is cold, a moment when it is warm.
	cd test/lab && $(LAB_ENV) $(GO) build -trimpath -o $(abspath $(BIN))/lab ./cmd/lab
	$(BIN)/lab build

.PHONY: clean
clean: ## Remove what was built here; caches outside the clone stay.
	rm -rf $(BIN)
	$(MAKE) -C test/fakegpu clean
	$(MAKE) -C interceptor clean

##@ Test

.PHONY: test-unit
test-unit: fakegpu interceptor ## Run the tests that need no control plane (RUN=regexp, GOTESTFLAGS=-race).
	$(GO) test $(if $(RUN),-run '$(RUN)') $(GOTESTFLAGS) $(UNIT_PACKAGES)

.PHONY: test-rules
test-rules: ## Test the rules for Prometheus with promtool, which is fetched where it is missing.
	promtool=$$(hack/promtool.sh) && "$$promtool" check rules charts/sluice/rules/*.yaml && "$$promtool" test rules test/metrics/rules_test.yaml

.PHONY: test-fakegpu
test-fakegpu: ## Test the fake GPU itself, also under the sanitizers.
	$(MAKE) -C test/fakegpu test

.PHONY: test-interceptor
test-interceptor: fakegpu interceptor ## Test the library: its parts, also under the sanitizers, and in programs on the fake GPU.
	$(MAKE) -C interceptor test
	$(GO) test $(if $(RUN),-run '$(RUN)') $(GOTESTFLAGS) ./test/interceptor/...

.PHONY: test-lab
test-lab: lab ## Test the local control plane itself.
	cd test/lab && $(LAB_ENV) $(GO) test $(if $(RUN),-run '$(RUN)') $(GOTESTFLAGS) ./...

.PHONY: test-chart
test-chart: lab ## Test chart and images: values, that config/ says the same, what is in an image; helm is built on the first call.
	cd hack/images && $(GO) test $(if $(RUN),-run '$(RUN)') $(GOTESTFLAGS) ./...
	$(GO) test $(if $(RUN),-run '$(RUN)') $(GOTESTFLAGS) ./test/chart/...

# Most of their time is waiting, so that more packages run at once than there are cores; those that take longest begin.
.PHONY: test-integration
test-integration: build fakegpu lab ## Run the tests that need a control plane (RUN=regexp).
	$(GO) test -count=1 -p 4 -timeout $(INTEGRATION_TIMEOUT) $(if $(RUN),-run '$(RUN)') $(GOTESTFLAGS) \
	  $(addprefix ./test/integration/,quota mainjob layouts health ...)

.PHONY: tenant-images
tenant-images: fakegpu lab ## Make the images of tenants that the end-to-end tests run.
	$(MAKE) -C test/e2e/images LAB=$(abspath $(BIN))/lab

# Chart and images that an upgrade comes from: those of the commit before this one.
.PHONY: previous-images
previous-images: images
	MAKE="$(MAKE)" hack/previous.sh $(PREVIOUS_DIR) $(BIN)/images/build/$(shell $(GO) env GOARCH)
	cd hack/images && $(GO) run . --out $(abspath $(PREVIOUS_DIR)) --version previous $(abspath $(PREVIOUS_DIR))/build/$(shell $(GO) env GOARCH)
previous-images: PREVIOUS_DIR = $(BIN)/images/previous

.PHONY: e2e
e2e: images previous-images tenant-images
	@[[ $$(id -u) == 0 ]] || { echo "the end-to-end tests need root: their nodes are namespaces, mounts and containers" >&2; exit 1; }
	hack/helm.sh >/dev/null
	$(BIN)/lab build --machines >/dev/null

.PHONY: test-e2e
test-e2e: e2e ## Run the end-to-end tests, which need root: images and chart on real nodes with fake GPUs (RUN=regexp).
	$(GO) test -count=1 -p 2 -timeout 20m $(if $(RUN),-run '$(RUN)') $(GOTESTFLAGS) ./test/e2e/...

.PHONY: test-e2e-long
test-e2e-long: e2e ## Run the end-to-end tests of faults at their full length: an outage of 5 minutes, pods for 10 (RUN=regexp).
	$(GO) test -count=1 -timeout 60m -v $(if $(RUN),-run '$(RUN)') $(GOTESTFLAGS) ./test/e2e/faults -long

.PHONY: pack
pack: images tenant-images ## Pack all that test/gpu/cluster.sh needs on a machine with a GPU and nothing else into bin/gpu/sluice-pack.tar.xz.
	$(BIN)/lab build --machines >/dev/null
	GO="$(GO)" test/gpu/pack.sh

.PHONY: bench
bench: build fakegpu lab ## Run the benchmarks behind docs/benchmarks.md (BENCH=regexp).
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -count=1 -p 1 -timeout $(INTEGRATION_TIMEOUT) $$($(GO) list ./... | grep -v /test/demo)

##@ Change

.PHONY: generate
generate: ## Regenerate deep copies and manifests after a change of api/ or of markers.
	$(CONTROLLER_GEN) object:headerFile=hack/boilerplate.go.txt paths=./api/...
	@$(MAKE) --no-print-directory manifests

.PHONY: manifests
manifests: ## Regenerate config/: CRDs, roles, webhooks; and the chart's copies of it.
	$(CONTROLLER_GEN) crd paths=./api/... output:crd:artifacts:config=config/crd
	$(CONTROLLER_GEN) rbac:roleName=sluice-manager webhook paths=./controllers/... paths=./node-agent/... \
	  output:rbac:artifacts:config=config/rbac output:webhook:artifacts:config=config/webhook
	hack/chart.sh

.PHONY: fmt
fmt: ## Format Go code and sort its imports.
	$$(hack/linter.sh) fmt

.PHONY: lint
lint: ## Lint all Go code; the linter is built on the first call.
	GO="$(GO)" hack/lint.sh

.PHONY: lint-fix
lint-fix: ## Lint, and repair what the linters can repair.
	GO="$(GO)" hack/lint.sh --fix

.PHONY: check
check: ## All of verify but the clean tree: for work in progress.
	GO="$(GO)" hack/verify/words.sh
	GO="$(GO)" hack/verify/shell.sh
	GO="$(GO)" hack/verify/c.sh
	GO="$(GO)" hack/verify/go.sh
	GO="$(GO)" MAKE="$(MAKE)" hack/verify/generated.sh
	@$(MAKE) --no-print-directory lint

.PHONY: verify
verify: check ## Regenerate, format, vet, lint, search for what must not be there; demand a clean tree.
	hack/verify/clean.sh
