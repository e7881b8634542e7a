# Everything a developer or a CI machine runs. Needs Go, git, make and bash;
# the race detector also needs a C compiler and is skipped without one.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

comma := ,

# Nothing but the RDMA providers and the race detector needs cgo, and what is compiled without it once serves all.
export CGO_ENABLED := 0

# How long each fuzz target runs.
FUZZTIME ?= 10s
# How many of them run at a time.
FUZZJOBS ?= $(shell nproc)
# The file that the demo serves; any file of some size will do.
FILE ?= bin/rdmad
# The most time that the tests of one package may take.
TEST_TIMEOUT ?= 20m
# How many packages are tested at a time: one more than there are processors, since tests spend much of their time waiting.
TESTJOBS ?= $(shell expr $$(nproc) + 1)

# The providers verbs and libfabric are built in where their libraries and a C compiler
# are; then the linters look at them, too.
RDMA := $(shell pkg-config --exists libibverbs librdmacm 2>/dev/null && command -v "$$(go env CC)" >/dev/null && echo verbs)
OFI := $(shell pkg-config --exists libfabric 2>/dev/null && command -v "$$(go env CC)" >/dev/null && echo libfabric)
WITH := $(subst $() $(),$(comma),$(strip $(RDMA) $(OFI)))
# Not with libfabric: libraries that Debian's pulls in make every start of a program take 0.2 s.
GO_BUILD = $(if $(RDMA),CGO_ENABLED=1 go build -tags $(RDMA),go build)

# "off" keeps make test from running the lab.
LAB ?= on
# The most time that the lab may take: its guest is an emulated machine.
LAB_TIMEOUT ?= 40m
# The same for the lab's faults.
LAB_FAULTS_TIMEOUT ?= 45m
# The harnesses that the lab runs over verbs; the others do not depend on the fabric.
LAB_HARNESSES = ^Test(ForkOrder|OneServerOneClient|FullRing|Processes|Goroutines|HandlerErrors|Balance|EveryStyle|Largest|Kill.*|StartOrder|PeerRestarts|Drain|PageserverDemo|Regions.*|NodeStopsInAnAnswer)$$

# Packages with concurrency of their own. Commands and examples are thin, repocheck reads files, and
# test/ runs the built programs, into which this race detector cannot look.
RACE_PACKAGES = $$(go list ./... | grep -vE '/(cmd|examples|test|internal/repocheck)(/|$$)')

.PHONY: help
help: ## Print the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: toolchain
toolchain:
	@command -v go >/dev/null || { \
		echo "No go command in PATH. rdmad needs Go $$(awk '$$1 == "go" { print $$2 }' go.mod) or newer: https://go.dev/dl" >&2; exit 1; }
	@go list -m >/dev/null || { \
		echo "$$(go version) cannot use this go.mod, which needs Go $$(awk '$$1 == "go" { print $$2 }' go.mod) or newer: https://go.dev/dl" >&2; exit 1; }

.PHONY: build
build: toolchain ## Build the commands and examples into bin/, with RDMA if libibverbs and librdmacm are installed.
	$(GO_BUILD) -o bin/ ./cmd/... ./examples/...

.PHONY: test
test: toolchain ## Run all tests and fuzz seeds, those with concurrency under the race detector, and the lab if it can run.
	@$(MAKE) --no-print-directory -j2 test-plain compile
	@if [[ -n "$$(command -v "$$(go env CC)")" ]]; then \
		echo "go test -race"; \
		CGO_ENABLED=1 go test -race -vet=off -p $(TESTJOBS) -timeout $(TEST_TIMEOUT) $(RACE_PACKAGES); \
	else \
		echo "race detector: skipped, it needs a C compiler and $$(go env CC) is not there"; \
	fi
	@if [[ "$(PACKAGING_TESTS)" == off ]]; then echo "packages: not tested, PACKAGING_TESTS=off"; fi
	@$(MAKE) --no-print-directory -j3 --output-sync=line test-libfabric $(if $(filter off,$(PACKAGING_TESTS)),,test-packages) test-modules test-faults
	@go build -o bin/lab ./test/lab
	@if [[ "$(LAB)" == off ]]; then \
		echo "lab: skipped, LAB=off"; \
	elif why=$$(bin/lab check 2>&1); then \
		$(MAKE) --no-print-directory lab; \
	else \
		echo "lab: skipped, $$why"; \
	fi

# ./test is first, since it takes longest, and what comes last has nothing beside it.
# go test also runs the seed corpora of all fuzz targets. It has vetted the packages before the race detector gets them.
.PHONY: test-plain
test-plain:
	go test -p $(TESTJOBS) -timeout $(TEST_TIMEOUT) ./test ./...

# What is tested after those is compiled beside them, where a processor has nothing else to do: they spend much of their time waiting.
.PHONY: compile
compile:
	@if [[ -n "$$(command -v "$$(go env CC)")" ]]; then \
		CGO_ENABLED=1 nice -n 19 go build -race $(RACE_PACKAGES); \
		(cd grpcx && CGO_ENABLED=1 nice -n 19 go build -race ./...); \
		(cd otelx && CGO_ENABLED=1 nice -n 19 go build -race ./...); \
	fi
	$(if $(OFI),@CGO_ENABLED=1 nice -n 19 go build -tags libfabric ./cmd/rdmad/... ./examples/pageserver)
	$(if $(RDMA),@CGO_ENABLED=1 nice -n 19 go build -tags verbs ./cmd/rdmad/... ./examples/pageserver ./test/labbench)
	@nice -n 19 go build -tags faultpoints ./client ./internal/agent ./cmd/rdmad

# They go on beside the tests of libfabric, packages and faults, those that take longest first: much of their time is spent waiting for
# processes that come and go.
.PHONY: test-modules
test-modules:
	@$(MAKE) --no-print-directory test-grpcx
	@$(MAKE) --no-print-directory test-otelx
	@$(MAKE) --no-print-directory test-peers
	@$(MAKE) --no-print-directory test-browser
	@$(MAKE) --no-print-directory test-kubernetes

# What runs on every machine that has libfabric: its providers tcp;ofi_rxm and shm.
OVER_LIBFABRIC = -rdmad.fabric libfabric -rdmad.programs "$(CURDIR)/bin/libfabric" -rdmad.messages 3000 -rdmad.most 100000 -rdmad.largest 33554432 -rdmad.limit 2m
LIBFABRIC_HARNESSES = ^Test(ForkOrder|OneServerOneClient|FullRing|Processes|Goroutines|HandlerErrors|Balance|EveryStyle|Largest|Kill.*|StartOrder|PeerRestarts|Drain|PageserverDemo|Regions.*|NodeStopsInAnAnswer)$$

# They kill or stop a core while that writes: libfabric's shm may hold a lock in the peer's memory then, for
# good (docs/fabrics.md, "Files of shm").
NOT_OVER_SHM = ^Test(RegionsAfterReconnect|NodeStopsInAnAnswer)$$

.PHONY: test-libfabric
test-libfabric: toolchain ## Run the tests of the provider libfabric, and harnesses over it, if it is installed.
	@if [[ -z "$(OFI)" ]]; then \
		echo "libfabric: skipped, it needs a C compiler, pkg-config and libfabric: apt-get install gcc pkg-config libfabric-dev"; \
	else \
		set -x; \
		CGO_ENABLED=1 go build -tags libfabric -o bin/libfabric/ ./cmd/rdmad ./examples/pageserver; \
		CGO_ENABLED=1 go test -tags libfabric -timeout $(TEST_TIMEOUT) ./internal/fabric/libfabric ./internal/perf/...; \
		CGO_ENABLED=1 go test -tags libfabric$(comma)faultpoints -timeout $(TEST_TIMEOUT) -run '^TestTrouble' ./internal/fabric/libfabric; \
		CGO_ENABLED=1 go test -tags libfabric -timeout $(TEST_TIMEOUT) -run 'Devices|PerfOver' ./cmd/rdmad; \
		go test -timeout $(TEST_TIMEOUT) ./test -run '$(LIBFABRIC_HARNESSES)' $(OVER_LIBFABRIC) -rdmad.libfabric 'tcp;ofi_rxm'; \
		go test -timeout $(TEST_TIMEOUT) ./test -run '$(LIBFABRIC_HARNESSES)' -skip '$(NOT_OVER_SHM)' $(OVER_LIBFABRIC) -rdmad.libfabric shm; \
	fi

# Without the race detector: processes die here, and its would be slow to start.
.PHONY: test-faults
test-faults: toolchain ## Kill and stop processes at every step that has a name: docs/testing.md.
	go test -tags faultpoints -timeout $(TEST_TIMEOUT) ./internal/faultpoint ./test/fault
	go test -tags faultpoints -timeout $(TEST_TIMEOUT) -run '^Test(Crash.*|Simulation)$$' ./internal/agent
	go test -tags faultpoints -timeout $(TEST_TIMEOUT) -run '^TestCloseBesideSpill$$' ./client

# grpcx is a module of its own, because of what it depends on.
.PHONY: test-grpcx
test-grpcx: toolchain ## Run the tests of the module grpcx, under the race detector where there is a C compiler.
	cd grpcx && go test -timeout $(TEST_TIMEOUT) ./...
	@if [[ -n "$$(command -v "$$(go env CC)")" ]]; then \
		echo "cd grpcx && go test -race"; \
		cd grpcx && CGO_ENABLED=1 go test -race -timeout $(TEST_TIMEOUT) .; \
	fi

# So is otelx.
.PHONY: test-otelx
test-otelx: toolchain ## Run the tests of the module otelx, under the race detector where there is a C compiler.
	cd otelx && go test -timeout $(TEST_TIMEOUT) ./...
	@if [[ -n "$$(command -v "$$(go env CC)")" ]]; then \
		echo "cd otelx && go test -race"; \
		cd otelx && CGO_ENABLED=1 go test -race -timeout $(TEST_TIMEOUT) .; \
	fi

# bench/peers is another, for the same reason.
.PHONY: test-peers
test-peers: toolchain ## Run the tests of the module bench/peers: every system works, and nothing is left over.
	cd bench/peers && go test -timeout $(TEST_TIMEOUT) ./...
	@if [[ -n "$$(command -v "$$(go env CC)")" ]]; then \
		echo "cd bench/peers && go test -race"; \
		cd bench/peers && CGO_ENABLED=1 go test -race -timeout $(TEST_TIMEOUT) ./internal/...; \
	fi

# Where test-browser keeps what it has seen.
SCREENSHOTS ?= bin/screenshots

# test/browser is another. It installs Chromium as root on Debian, and is skipped where
# there is none.
.PHONY: test-browser
test-browser: toolchain ## Look at the web page with Chromium: real daemons under load, restarts, hostile names; screenshots go to SCREENSHOTS.
	cd test/browser && go test -count 1 -timeout $(TEST_TIMEOUT) . -rdmad.screenshots "$(abspath $(SCREENSHOTS))"

# "off" keeps make test from building packages and trying them.
PACKAGING_TESTS ?= on
# What packaging is told, such as -arch arm64 or -version 1.2.3.
PACKAGING ?=

.PHONY: packages
packages: toolchain ## Build .deb and .rpm packages into bin/packages: docs/packages.md.
	cd packaging && go run . $(PACKAGING)

# packaging and deploy/kubernetes are modules of their own. As root on Debian the packages are
# installed in a chroot; elsewhere that is skipped, and the test says what is missing.
.PHONY: test-packages test-kubernetes
test-packages: toolchain ## Build packages, look into them, and install, run, upgrade and remove them in a small Debian.
	go test -tags docs -timeout $(TEST_TIMEOUT) ./cmd/rdmad
	cd packaging && go test -v -timeout 20m ./... | grep -v '^=== RUN'

test-kubernetes: toolchain ## Check the manifests against Kubernetes' own types, and against the configuration that they carry.
	cd deploy/kubernetes && go test -timeout $(TEST_TIMEOUT) ./...

# Where bench-peers writes figures and plots, and what else it is told.
RESULTS ?= bench/results
PEERS ?=

.PHONY: build-peers bench-peers
build-peers: build
	cd bench/peers && go build -o ../../bin/ .

bench-peers: build-peers ## Compare rdmad with raw sockets, gRPC and NATS, and write figures and plots into RESULTS.
	mkdir -p $(RESULTS)
	bin/peers --rdmad bin/rdmad --json $(RESULTS)/latest.json --plots $(RESULTS) \
		--revision "$$(git describe --always --dirty 2>/dev/null || echo unknown)" $(PEERS)
	@if [[ "$(RESULTS)" == bench/results ]]; then go test ./internal/repocheck -run '^TestFigures$$' -update; fi # in README.md

# Up to Go 1.26 a run that ends by time may fail with "context deadline exceeded"
# although no input failed (https://go.dev/issue/75804). A real failure always
# says where it wrote the failing input.
# What most of them are made of is compiled once before, and not by each of FUZZJOBS at the same time.
.PHONY: fuzz
fuzz: toolchain ## Run every fuzz target for FUZZTIME (10s), FUZZJOBS at a time (as many as there are processors).
	@cd internal/daemon && go test -run '^$$' -fuzz '^$$' . >/dev/null
	@grep -rHoE --include='*_test.go' --exclude-dir=testdata '^func Fuzz[A-Za-z0-9_]+' . | sort | \
		xargs -P $(FUZZJOBS) -I '{}' $(MAKE) --no-print-directory fuzz-one TARGET='{}'

# One target: its file, a colon, and "func NAME".
.PHONY: fuzz-one
fuzz-one:
	@target='$(TARGET)'; dir=$$(dirname "$${target%%:*}"); name=$${target##* }; \
	if ! out=$$(cd "$$dir" && go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -parallel 1 . 2>&1); then \
		echo "fuzz $$dir $$name"; echo "$$out"; \
		grep -q 'context deadline exceeded' <<<"$$out" || exit 1; \
		! grep -qE 'Failing input|panic:' <<<"$$out" || exit 1; \
	fi; \
	echo "fuzz $$dir $$name: passed, $$(grep -oE 'execs: [0-9]+' <<<"$$out" | tail -1)"

# Warnings of the C compiler are errors here, and in nobody's build: other compilers have others.
# The linters and the compiler collect their garbage less often: they are short, and most of what they take they need to the end.
.PHONY: lint
lint: export GOGC := 400
lint: toolchain ## Check formatting, go vet, staticcheck and the C compiler's warnings.
	@unformatted=$$(gofmt -l .); [[ -z "$$unformatted" ]] || { echo "not formatted, run gofmt -w:"; echo "$$unformatted"; exit 1; }
	go vet ./...
	go vet -tags faultpoints ./client ./internal/faultpoint ./internal/supervisor ./internal/agent ./internal/daemon ./test/fault
	go tool staticcheck ./...
	go tool staticcheck -tags faultpoints ./client ./internal/faultpoint ./internal/supervisor ./internal/agent ./internal/daemon ./test/fault
	cd grpcx && go vet ./... && go tool -modfile=../go.mod staticcheck ./...
	cd otelx && go vet ./... && go tool -modfile=../go.mod staticcheck ./...
	cd bench/peers && go vet ./... && go tool -modfile=../../go.mod staticcheck ./...
	cd test/browser && go vet ./... && go tool -modfile=../../go.mod staticcheck ./...
	cd packaging && go vet ./... && go tool -modfile=../go.mod staticcheck ./...
	cd deploy/kubernetes && go vet ./... && go tool -modfile=../../go.mod staticcheck ./...
	go vet -tags docs ./cmd/... && go tool staticcheck -tags docs ./cmd/rdmad
	$(if $(WITH),export CGO_ENABLED=1 && go vet -tags $(WITH) ./internal/fabric/... ./internal/doctor ./cmd/... && go tool staticcheck -tags $(WITH) ./internal/fabric/... ./cmd/...)
	$(if $(WITH),CGO_ENABLED=1 CGO_CFLAGS="$$(go env CGO_CFLAGS) -Werror" go build -tags $(WITH) ./internal/fabric/...)
	$(if $(WITH),CGO_ENABLED=1 CGO_CFLAGS="$$(go env CGO_CFLAGS) -Werror" go build -tags $(WITH)$(comma)faultpoints ./internal/fabric/...)
	$(if $(RDMA),CGO_ENABLED=1 go vet -tags $(RDMA)$(comma)faultpoints ./internal/fabric/verbs)
	$(if $(OFI),CGO_ENABLED=1 go vet -tags $(OFI)$(comma)faultpoints ./internal/fabric/libfabric)

# arm64 without the command's profile: by that everything would be compiled once more, also the standard library.
.PHONY: cross
cross: export GOGC := 400
cross: toolchain ## Build everything for the supported platforms, without cgo.
	GOOS=linux GOARCH=amd64 go build ./...
	GOOS=linux GOARCH=arm64 go build -pgo=off ./...
	cd grpcx && GOOS=linux GOARCH=amd64 go build ./...
	cd grpcx && GOOS=linux GOARCH=arm64 go build ./...
	cd otelx && GOOS=linux GOARCH=amd64 go build ./...
	cd otelx && GOOS=linux GOARCH=arm64 go build ./...
	cd bench/peers && GOOS=linux GOARCH=amd64 go build ./...
	cd bench/peers && GOOS=linux GOARCH=arm64 go build ./...

.PHONY: demo
demo: build ## Serve the pages of FILE (bin/rdmad) between two daemons on this machine.
	FILE="$(FILE)" bin/rdmad sandbox -- bin/pageserver demo --workers 4 --file "$(FILE)"

# How long the torture lasts, and what else it is told.
DURATION ?= 60s
TORTURE ?= --no-errors=worker-kill,worker-stop,service-stop,core-stop,bootstrap-reset,data-reset,link-reset,half-close,slow,sock-destroy,core-kill,worker-core-kill,upgrade

.PHONY: build-torture torture
build-torture: build
	go build -o bin/ ./test/torture

torture: build-torture ## Kill, stop, cut off and attack whatever there is for DURATION (60s), and see whether anything is lost.
	bin/torture --duration=$(DURATION) $(TORTURE)

# The lab needs Debian, and root if packages are missing: docs/lab.md. It installs
# what the programs are built with, too, so they are built after it has started.
.PHONY: lab
lab: toolchain ## Run the tests that need RDMA, and harnesses over RDMA, in a virtual machine that has it in software.
	go build -o bin/lab ./test/lab
	bin/lab run --timeout $(LAB_TIMEOUT) -- $(MAKE) --no-print-directory lab-tests

IN_LAB = -tags verbs -count 1 -exec "$(CURDIR)/bin/lab exec --" -timeout $(LAB_TIMEOUT)
OVER_VERBS = -rdmad.fabric verbs -rdmad.programs "$(CURDIR)/bin/verbs" -rdmad.messages 10000 -rdmad.most 300000 -rdmad.largest 33554432 -rdmad.limit 2m

# The same over libfabric's verbs;ofi_rxm, and what make lab runs of the tests of the provider.
OVER_RXM = $(OVER_LIBFABRIC) -rdmad.libfabric 'verbs;ofi_rxm'
RXM_TESTS = ^Test(Conformance|NoticesWithoutRoom|CloseWithoutRoom|VerbsNeeds|Devices)$$

# What labbench needs to compare libfabric's providers, too.
WITH_LIBFABRIC = $(if $(OFI),-libfabric bin/libfabric/rdmad)

# What "lab run" starts on the host.
.PHONY: lab-programs lab-tests
lab-programs:
	CGO_ENABLED=1 go build -tags verbs -o bin/verbs/ ./cmd/rdmad ./examples/pageserver ./test/labbench
	$(if $(OFI),CGO_ENABLED=1 go build -tags libfabric -o bin/libfabric/ ./cmd/rdmad ./examples/pageserver)
	$$(go env CC) -O2 -Wall -Wextra -Werror -o bin/verbs/pingpong test/labbench/pingpong/pingpong.c -libverbs

lab-tests: lab-programs
	CGO_ENABLED=1 go test $(IN_LAB) -p 1 ./test/lab/guesttest ./internal/fabric/verbs ./shm
	CGO_ENABLED=1 go test $(IN_LAB) ./test -run '$(LAB_HARNESSES)' $(OVER_VERBS)
	CGO_ENABLED=1 go test $(IN_LAB) ./test -run '^Test(ForkOrder|PeerRestarts|PageserverDemo)$$' $(OVER_VERBS) -rdmad.connect rdmacm
	CGO_ENABLED=1 go test $(IN_LAB) ./test -run '^TestRDMA(PortFlaps|CoresKilled|PowerOff)$$' $(OVER_VERBS) -rdmad.corekills 3
	$(if $(OFI),CGO_ENABLED=1 go test $(IN_LAB) -tags libfabric -run '$(RXM_TESTS)' ./internal/fabric/libfabric -args -rdmad.libfabric 'verbs;ofi_rxm')
	$(if $(OFI),CGO_ENABLED=1 go test $(IN_LAB) ./test -run '^Test(FullRing|KillService|KillSupervisor)$$' $(OVER_RXM))
	bin/lab exec -- bin/verbs/labbench -perf -rounds 1 -messages 200 $(WITH_LIBFABRIC)

.PHONY: lab-rxm lab-rxm-tests
lab-rxm: toolchain ## Run all tests of the provider libfabric, and harnesses, over verbs;ofi_rxm in the lab's virtual machine.
	go build -o bin/lab ./test/lab
	bin/lab run --timeout $(LAB_FAULTS_TIMEOUT) -- $(MAKE) --no-print-directory lab-rxm-tests

lab-rxm-tests: lab-programs
	CGO_ENABLED=1 go test $(IN_LAB) -tags libfabric ./internal/fabric/libfabric -args -rdmad.libfabric 'verbs;ofi_rxm'
	CGO_ENABLED=1 go test $(IN_LAB) -tags libfabric$(comma)faultpoints -run '^TestTrouble' ./internal/fabric/libfabric -args -rdmad.libfabric 'verbs;ofi_rxm'
	CGO_ENABLED=1 go test $(IN_LAB) ./test -run '$(LIBFABRIC_HARNESSES)' $(OVER_RXM)

# What is not lost when RDMA breaks, in all the ways there are: about a quarter of an hour.
.PHONY: lab-faults lab-fault-programs lab-fault-tests
lab-faults: toolchain ## Break RDMA in the lab's virtual machine in every way there is: docs/lab.md.
	go build -o bin/lab ./test/lab
	bin/lab run --timeout $(LAB_FAULTS_TIMEOUT) -- $(MAKE) --no-print-directory lab-fault-tests

lab-fault-programs: lab-programs
	CGO_ENABLED=1 go build -tags verbs,faultpoints -o bin/faults/ ./cmd/rdmad ./examples/pageserver
	go build -o bin/verbs/ ./test/torture

lab-fault-tests: lab-fault-programs
	CGO_ENABLED=1 go test $(IN_LAB) ./test -v -run '^TestRDMA' $(OVER_VERBS)
	CGO_ENABLED=1 go test $(IN_LAB) ./test -v -run '^TestRDMAQueuePairs$$' $(OVER_VERBS) -rdmad.programs "$(CURDIR)/bin/faults" -rdmad.faults
	CGO_ENABLED=1 go test $(IN_LAB) ./test -v -run '^TestRDMA(PortFlaps|Failover)$$' $(OVER_VERBS) -rdmad.connect rdmacm
	bin/lab exec -- bin/verbs/torture --fabric=verbs --duration=$(DURATION) $(TORTURE)

# What lab-bench is told, such as -rounds 1 -json, and how long it may take. A round takes 4 to 8 minutes, more where
# the machine is slow; there are as many as fit.
LABBENCH ?=
LAB_BENCH_TIMEOUT ?= 75m
LAB_BENCH_WITHIN ?= 45m

.PHONY: lab-bench
lab-bench: toolchain ## Compare rdmad over RDMA with perftest and a bare ping-pong in the lab's virtual machine, and with the targets.
	go build -o bin/lab ./test/lab
	bin/lab run --timeout $(LAB_BENCH_TIMEOUT) -- sh -c '$(MAKE) --no-print-directory lab-programs && bin/lab exec -- bin/verbs/labbench -within $(LAB_BENCH_WITHIN) $(WITH_LIBFABRIC) $(LABBENCH)'

# The packages with micro-benchmarks that need nothing special and take seconds; those of
# ./server move much memory, and those of ./internal/fabric/verbs need RDMA.
PACKAGES ?= ./slots ./groupsend ./internal/poller ./internal/vault ./internal/fabric/tcp ./client ./internal/agent

.PHONY: bench-compare
bench-compare: toolchain ## Compare the micro-benchmarks of revision BASE with those of this tree: docs/performance.md.
	@CGO_ENABLED=$(if $(TAGS),1,0) BASE='$(BASE)' BENCH='$(BENCH)' COUNT='$(COUNT)' BENCHTIME='$(BENCHTIME)' TAGS='$(TAGS)' EXEC='$(EXEC)' KEEP='$(KEEP)' \
		PACKAGES='$(PACKAGES)' test/benchcompare/compare.sh

# Workloads whose profiles the compiler optimises rdmad by, each long enough for a profile.
PROFILE_LOADS = "call --clients 8 --depth 64 --size 64" "call --clients 8 --size 64" "pages --clients 8 --depth 8" \
	"oneway --clients 8 --size 64" "call --clients 4 --depth 16 --size 64KiB"

.PHONY: profile
profile: toolchain ## Measure anew what the compiler optimises rdmad by (cmd/rdmad/default.pgo), in about a minute.
	@set -eu; dir="$$(mktemp -d)"; trap 'rm -rf "$$dir"' EXIT; \
	go build -tags profile -pgo=off -o "$$dir/rdmad" ./cmd/rdmad; \
	for load in $(PROFILE_LOADS); do \
		for pin in "" "taskset -c 0"; do \
			echo "$$pin rdmad bench $$load"; \
			RDMAD_PROFILE="$$dir" $$pin "$$dir/rdmad" sandbox -- "$$dir/rdmad" bench $$load --duration 7s >/dev/null; \
		done; \
	done; \
	go tool pprof -proto -output cmd/rdmad/default.pgo $$(find "$$dir" -name '*.pprof' -size +1k) 2>/dev/null; \
	ls -l cmd/rdmad/default.pgo

.PHONY: clean
clean: ## Remove what was built.
	rm -rf bin coverage*
	find . -name '*.test' -type f -delete
