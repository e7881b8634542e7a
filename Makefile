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

# Packages with concurrency of their own. Commands and examples are thin, and
# test/ runs the built programs, into which this race detector cannot look.
RACE_PACKAGES = $$(go list ./... | grep -vE '/(cmd|examples|test)(/|$$)')

.PHONY: help
help: ## Print the targets.
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "%-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: toolchain
toolchain:
	@command -v go >/dev/null || { \
		echo "No go command in PATH. rdmad needs Go $$(awk '$$1 == "go" { print $$2 }' go.mod) or newer: https://go.dev/dl" >&2; exit 1; }
	@go list -m >/dev/null || { \
		echo "$$(go version) cannot use this go.mod, which needs Go $$(awk '$$1 == "go" { print $$2 }' go.mod) or newer: https://go.dev/dl" >&2; exit 1; }

.PHONY: build
build: toolchain ## Build the commands and examples into bin/, without cgo.
	CGO_ENABLED=0 go build -o bin/ ./cmd/... ./examples/...

# go test also runs the seed corpora of all fuzz targets.
.PHONY: test
test: toolchain ## Run all tests and fuzz seeds, then those with concurrency under the race detector.
	go test -timeout $(TEST_TIMEOUT) ./...
	@if [[ -n "$$(command -v "$$(go env CC)")" ]]; then \
		echo "go test -race"; \
		CGO_ENABLED=1 go test -race -timeout $(TEST_TIMEOUT) $(RACE_PACKAGES); \
	else \
		echo "race detector: skipped, it needs a C compiler and $$(go env CC) is not there"; \
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

.PHONY: cross
cross: toolchain ## Build everything for the supported platforms, without cgo.
	CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go build ./...
	CGO_ENABLED=0 GOOS=linux GOARCH=arm64 go build ./...

.PHONY: demo
demo: build ## Serve the pages of FILE (bin/rdmad) between two daemons on this machine.
	FILE="$(FILE)" bin/rdmad sandbox -- bin/pageserver demo --workers 4 --file "$(FILE)"

# The lab needs Debian, and root if packages are missing: docs/lab.md.
.PHONY: lab
lab: toolchain ## Run the tests that need RDMA in a virtual machine that has it in software.
	CGO_ENABLED=0 go build -o bin/lab ./test/lab
	bin/lab run -- go test -exec "$(CURDIR)/bin/lab exec --" ./test/lab/guesttest

.PHONY: clean
clean: ## Remove what was built.
	rm -rf bin coverage*
	find . -name '*.test' -type f -delete
