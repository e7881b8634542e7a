# Everything a developer or a CI machine runs. Needs Go, git, make and bash;
# the race detector also needs a C compiler and is skipped without one.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# How long each fuzz target runs.
FUZZTIME ?= 10s
# The file that the demo serves; any file of some size will do.
FILE ?= bin/rdmad
# The most time that the tests of one package may take.
TEST_TIMEOUT ?= 5m

# The RDMA provider is built in where its libraries and a C compiler are; then
# the linters look at it, too.
RDMA := $(shell pkg-config --exists libibverbs librdmacm 2>/dev/null && command -v "$$(go env CC)" >/dev/null && echo verbs)
GO_BUILD = $(if $(RDMA),CGO_ENABLED=1 go build -tags $(RDMA),CGO_ENABLED=0 go build)

# "off" keeps make test from running the lab.
LAB ?= on
# The most time that the lab may take: its guest is an emulated machine.
LAB_TIMEOUT ?= 25m
# The harnesses that the lab runs over verbs; the others do not depend on the fabric.
LAB_HARNESSES = ^Test(ForkOrder|OneServerOneClient|FullRing|Processes|Goroutines|HandlerErrors|Balance|Kill.*|StartOrder|PeerRestarts|Drain|PageserverDemo|Regions.*)$$

# Packages with concurrency of their own. Commands and examples are thin, and
# test/ runs the built programs, into which this race detector cannot look.
RACE_PACKAGES = $$(go list ./... | grep -vE '/(cmd|examples|test)(/|$$)')

.PHONY: help
help: ## Print the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: toolchain
toolchain:
	@command -v go >/dev/null || { \
		echo "No go command in PATH. rdmad needs Go $$(awk '$$1 == "go" { print $$2 }' go.mod) or newer: https://go.dev/dl" >&2; exit 1; }
	@go list -m >/dev/null || { \
		echo "$$(go version) cannot use this go.mod, which needs Go $$(awk '$$1 == "go" { print $$2 }' go.mod) or newer: https://go.dev/dl" >&2; exit 1; }

.PHONY: build
build: toolchain ## Build the commands and examples into bin/, with RDMA if libibverbs and librdmacm are installed.
	$(GO_BUILD) -o bin/ ./cmd/... ./examples/...

# go test also runs the seed corpora of all fuzz targets.
.PHONY: test
test: toolchain ## Run all tests and fuzz seeds, those with concurrency under the race detector, and the lab if it can run.
	go test -timeout $(TEST_TIMEOUT) ./...
	@if [[ -n "$$(command -v "$$(go env CC)")" ]]; then \
		echo "go test -race"; \
		CGO_ENABLED=1 go test -race -timeout $(TEST_TIMEOUT) $(RACE_PACKAGES); \
	else \
		echo "race detector: skipped, it needs a C compiler and $$(go env CC) is not there"; \
	fi
	@CGO_ENABLED=0 go build -o bin/lab ./test/lab
	@if [[ "$(LAB)" == off ]]; then \
		echo "lab: skipped, LAB=off"; \
	elif why=$$(bin/lab check 2>&1); then \
		$(MAKE) --no-print-directory lab; \
	else \
		echo "lab: skipped, $$why"; \
	fi

# Up to Go 1.26 a run that ends by time may fail with "context deadline exceeded"
# although no input failed (https://go.dev/issue/75804). A real failure always
# says where it wrote the failing input.
.PHONY: fuzz
fuzz: toolchain ## Run every fuzz target for FUZZTIME (10s).
	@grep -rHoE --include='*_test.go' --exclude-dir=testdata '^func Fuzz[A-Za-z0-9_]+' . | sort | while IFS=: read -r file func; do \
		dir=$$(dirname "$$file"); name=$${func#func }; \
		echo "fuzz $$dir $$name"; \
		if ! out=$$(go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "$$dir" 2>&1); then \
			echo "$$out"; \
			grep -q 'context deadline exceeded' <<<"$$out" || exit 1; \
			! grep -qE 'Failing input|panic:' <<<"$$out" || exit 1; \
		fi; \
	done

.PHONY: lint
lint: toolchain ## Check formatting, go vet and staticcheck.
	@unformatted=$$(gofmt -l .); [[ -z "$$unformatted" ]] || { echo "not formatted, run gofmt -w:"; echo "$$unformatted"; exit 1; }
	go vet ./...
	go tool staticcheck ./...
	$(if $(RDMA),go vet -tags $(RDMA) ./internal/fabric/... ./cmd/... && go tool staticcheck -tags $(RDMA) ./internal/fabric/... ./cmd/...)

.PHONY: cross
cross: toolchain ## Build everything for the supported platforms, without cgo.
	CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go build ./...
	CGO_ENABLED=0 GOOS=linux GOARCH=arm64 go build ./...

.PHONY: demo
demo: build ## Serve the pages of FILE (bin/rdmad) between two daemons on this machine.
	FILE="$(FILE)" bin/rdmad sandbox -- bin/pageserver demo --workers 4 --file "$(FILE)"

# The lab needs Debian, and root if packages are missing: docs/lab.md. It installs
# what the programs are built with, too, so they are built after it has started.
.PHONY: lab
lab: toolchain ## Run the tests that need RDMA, and harnesses over RDMA, in a virtual machine that has it in software.
	CGO_ENABLED=0 go build -o bin/lab ./test/lab
	bin/lab run --timeout $(LAB_TIMEOUT) -- $(MAKE) --no-print-directory lab-tests

IN_LAB = -tags verbs -count 1 -exec "$(CURDIR)/bin/lab exec --" -timeout $(LAB_TIMEOUT)
OVER_VERBS = -rdmad.fabric verbs -rdmad.programs "$(CURDIR)/bin/verbs" -rdmad.messages 10000 -rdmad.limit 2m

# What "lab run" starts on the host.
.PHONY: lab-programs lab-tests
lab-programs:
	CGO_ENABLED=1 go build -tags verbs -o bin/verbs/ ./cmd/rdmad ./examples/pageserver ./test/labbench

lab-tests: lab-programs
	CGO_ENABLED=1 go test $(IN_LAB) -p 1 ./test/lab/guesttest ./internal/fabric/verbs ./shm
	CGO_ENABLED=1 go test $(IN_LAB) ./test -run '$(LAB_HARNESSES)' $(OVER_VERBS)
	CGO_ENABLED=1 go test $(IN_LAB) ./test -run '^Test(ForkOrder|PeerRestarts|PageserverDemo)$$' $(OVER_VERBS) -rdmad.connect rdmacm

.PHONY: lab-bench
lab-bench: toolchain ## Compare rdmad over RDMA with ib_write_lat and ib_write_bw in the lab's virtual machine.
	CGO_ENABLED=0 go build -o bin/lab ./test/lab
	bin/lab run --timeout $(LAB_TIMEOUT) -- sh -c '$(MAKE) --no-print-directory lab-programs && bin/lab exec -- bin/verbs/labbench'

.PHONY: clean
clean: ## Remove what was built.
	rm -rf bin coverage*
	find . -name '*.test' -type f -delete
