# weir: `make` prints what there is.
.DEFAULT_GOAL := help
.PHONY: help build dist run test s3 shards versions contract lint fuzz chaos sim bench peers remeasure conformance deploy site

VERSION     := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
PROMTOOL    := github.com/prometheus/prometheus/cmd/promtool@v0.316.0
# By count: by time, go test takes its own deadline for a failure now and then (golang/go#75804, mended in Go 1.27).
FUZZTIME    ?= 50000x
ARGS        ?=
# SQLite keeps its data outside Go's memory, where the race detector sees nothing. Its code, which is C made Go, is
# therefore built without it: with it, tests on SQLite take twice the time. Its driver is built with it, as all else.
RACE        := -race -gcflags=modernc.org/sqlite/lib=-race=false -gcflags=modernc.org/libc/...=-race=false
# Those that take longest begin first, so that none of them is left alone at the end. More packages beside each other
# than there are cores make tests fail whose processes have a session of seconds.
LONGEST     := ./use/queue ./door/cli . ./door/sqlfn ./store/s3 ./store/postgres ./door/httpapi

help: ## print these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build ./weir, one static binary
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o weir ./cmd/weir

dist: ## build what people install into ./dist: archives, Debian packages, checksums
	go run ./internal/dist -version $(VERSION)

run: build ## build and start weir on SQLite under ./weir-data; flags in ARGS
	@./weir serve $(ARGS)

test: ## run all tests with the race detector, a real PostgreSQL included
	CGO_ENABLED=1 go test $(RACE) -timeout 30m $(LONGEST) ./...
	go test -run NobodyTakes ./door/kafka # which the race detector makes too dear
	cd bench && go test -timeout 30m ./...

peers: ## the benchmark's tests of other systems, those that weir-bench fetch has fetched: many minutes
	cd bench && WEIR_BENCH_PEERS=1 go test -count=1 -timeout 60m -v -run TestPeers ./run

s3: ## the tests of all uses and doors on S3, a real versitygw: they take minutes
	WEIR_TEST_S3=1 go test -count=1 -p 1 -timeout 30m -run '/s3' . ./use/... ./door/... ./store

shards: ## the tests of all uses and doors on a store made of two SQLite files
	WEIR_TEST_SHARDS=1 go test -count=1 -p 1 -timeout 30m -run '/^shards$$' . ./use/... ./door/... ./store/...

versions: ## the PostgreSQL tests on the oldest and the newest version that weir supports, fetched where they are missing
	WEIR_TEST_POSTGRES_VERSION=14 go test -timeout 20m ./store/postgres ./door/sqlfn
	WEIR_TEST_POSTGRES_VERSION=18 go test -timeout 20m ./store/postgres ./door/sqlfn

contract: ## the contract of stores on the oldest and the newest PostgreSQL that weir supports and on MySQL, and SQL on MySQL: five minutes
	@set -e; for version in 14 18; do \
		if WEIR_TEST_POSTGRES_VERSION=$$version go test -count=1 -run '^TestEveryTestHasADatabaseOfItsOwn$$' ./internal/pgtest; then \
			WEIR_TEST_POSTGRES_VERSION=$$version go test -count=1 -timeout 10m -run '^TestStore$$' ./store/postgres; \
		else echo "PostgreSQL $$version cannot be fetched here: the contract was NOT tested on it"; fi; \
	done
	@set -e; if WEIR_TEST_MYSQL_VERSION=9.7 go test -count=1 -run '^TestEveryTestHasADatabaseOfItsOwn$$' ./internal/mytest; then \
		WEIR_TEST_MYSQL_VERSION=9.7 go test -count=1 -timeout 10m -run '^TestStore$$' ./store/mysql; \
		WEIR_TEST_MYSQL_VERSION=9.7 go test -count=1 -timeout 10m ./door/inbox; \
	else echo "MySQL 9.7 cannot be fetched here: the contract and SQL were NOT tested on it"; fi

lint: ## gofmt, go vet, staticcheck
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "not gofmt'ed:"; echo "$$unformatted"; exit 1; fi
	go vet ./...
	go run $(STATICCHECK) ./...
	cd bench && go vet ./... && go run $(STATICCHECK) ./...

fuzz: ## run every fuzz target for FUZZTIME (50000x: so many inputs)
	@set -e; grep -rHoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | sort | while IFS=: read -r file func; do \
		target=$${func#func }; dir=$$(dirname $$file); \
		echo "go test -run '^$$' -fuzz '^$$target$$' -fuzztime $(FUZZTIME) $$dir"; \
		go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$dir < /dev/null; \
	done

chaos: ## random histories through every door against a model, while processes and the database are killed; flags in ARGS
	go run ./internal/chaos $(ARGS)

sim: ## random histories of all uses on simulated stores, in fake time; ARGS='-seeds 10000', '-seed 42 -show', -mutants
	go test -count 1 -timeout 24h -run '^Test(Histories|Mutants)$$' -v ./internal/sim $(if $(ARGS),-args $(ARGS),-args -for 1m)

bench: ## measure weir and other systems on this machine, and check what they promise; ARGS='run try'
	@cd bench && go build -o ../weir-bench ./cmd/weir-bench
	@./weir-bench $(if $(ARGS),$(ARGS),run try)

remeasure: ## measure anew all of docs/benchmarks.md: two hours, on a machine that does nothing else
	@./bench/remeasure.sh

site: ## build docs as a site below dist/site; it fails if a link or an anchor leads nowhere
	python3 -m pip install -q --disable-pip-version-check --upgrade --target dist/mkdocs -r site/requirements.txt
	PYTHONPATH=dist/mkdocs python3 -m mkdocs build -f site/mkdocs.yml

deploy: ## check the alert rules of deploy/, and run their tests, with Prometheus' promtool
	cd deploy/prometheus && go run $(PROMTOOL) check rules weir.rules.yaml && go run $(PROMTOOL) test rules weir.rules.test.yaml

conformance: ## run franz-go's own tests against weir on each store; ARGS=--kafka: Kafka's own (Maven, JDK 17); ARGS=--streams: Kafka Streams' own; ARGS='--mixed 200': harm to a group of all kinds of members
	go run ./internal/conformance $(ARGS)
