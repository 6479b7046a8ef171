.PHONY: help test full alone busy manifests race flakes draws fuzz soak sim sim-regions sim-snapshots schedules paths pictures bench lint demo

# Runs the tests of every module. It is the default target.
test:
	go test work

# Prints the targets.
help:
	@awk '/^#/ { sub(/^# ?/, ""); text = text (text ? " " : "") $$0; next } /^[A-Z_]+ / { next } \
		/^[a-z-]+:/ { sub(/:.*/, ""); printf "%-14s %s\n", $$0, text } { text = "" }' Makefile

# Runs the full tests. They show promises once more, by more expensive means than the default run.
full:
	WEIR_FULL=1 go test -timeout 30m $$(./.ci/packages full)

# Runs the tests that need an otherwise idle machine: real networks and lost packets, which need
# root, nodes under siege, and gateways beside processes that use all CPU time.
alone:
	go test -count=1 -run 'RealNetwork|LostPackets|Siege|BusyMachine' ./internal/processtests

# Starts three gateways beside seven busy processes for each core, in BUSY_ROUNDS rounds of 4 s.
# Each round prints how many of 1,000 requests were admitted for a limit of 100.
BUSY_ROUNDS ?= 40
busy:
	go test -count=1 -timeout 30m -v -run BusyMachine ./internal/processtests -busyrounds $(BUSY_ROUNDS)

# Renders deploy/testdata/rendered. Run it after a change of the chart, its values or a kustomization.
manifests:
	cd deploy && go test -count=1 -tags render -run Render . -update

# Tests the packages that start goroutines under the race detector.
race:
	go test -race -run Siege ./internal/processtests
	cd cmd/demo && go test -race .
	go test -race -timeout 15m $$(./.ci/packages raced) $$(./.ci/packages adapters)

# Finds tests that fail by chance: runs the default tests FLAKES times under load, each fifth time
# under the race detector. FLAKES_OF="./cluster ." runs only the tests of these packages.
FLAKES ?= 20
FLAKES_OF ?=
flakes:
	./.ci/flakes $(FLAKES) $(FLAKES_OF)

# Runs the tests with other random examples. Other targets use the same examples in each run. A
# failure prints its seed, which SEED=... make draws replays.
draws:
	WEIR_SEED=$(or $(SEED),0) go test -count=1 $$(./.ci/packages drawn)

# Runs each fuzz target briefly. FUZZTIME=10m make fuzz runs each for ten minutes.
FUZZTIME ?= 10000x
fuzz:
	./.ci/fuzz $(FUZZTIME)

# Runs a cluster of real processes under traffic and faults for the time SOAK. It fails if the use of a
# resource grows or a promise breaks. SEED=7 make soak repeats the faults of a printed seed.
SOAK ?= 10m
soak:
	go run ./cmd/demo -soak $(SOAK) $(if $(SEED),-seed $(SEED))

# Simulates SIMS clusters in virtual time, each with other random faults. SEED=7 make sim begins
# with seed 7, and continues with the next seeds.
SIMS ?= 2000
SEED ?=
sim:
	go run ./simulations -n $(SIMS) $(if $(SEED),-seed $(SEED))

# Like sim, with regions that share limits and are disconnected from each other.
SIMS_REGIONS ?= 1000
sim-regions:
	go run ./simulations -regions -n $(SIMS_REGIONS) $(if $(SEED),-seed $(SEED))

# Like sim, but all nodes write snapshots, and stop together once or twice.
SIMS_SNAPSHOTS ?= 1000
sim-snapshots:
	go run ./simulations -snapshots -n $(SIMS_SNAPSHOTS) $(if $(SEED),-seed $(SEED))

# Tests random schedules of tiny clusters. In the first test, frames are lost, repeated and
# reordered, and members crash and split: each replica must count each unit that it knows once.
# A core runs about 200 of these schedules a second. The second test has holds and reservations in
# healthy clusters, which must be exact, about 150 a second. Without SEED, each run draws others.
SCHEDULES ?= 100000
HOLD_SCHEDULES ?= 10000
schedules:
	go test ./sync -count=1 -timeout 0 -run '^TestEveryUnitCountsOnceUnderFaults$$' \
		-rapid.checks $(SCHEDULES) -rapid.nofailfile -rapid.seed $(or $(SEED),0)
	go test ./internal/clustertests -count=1 -timeout 0 -run SchedulesOfHolds \
		-schedules $(HOLD_SCHEDULES) $(if $(SEED),-first $(SEED))

# Sends request targets that no client library would send, to each router, and through nginx and
# Caddy. The rule of each handler that is reached must have decided the request. Without SEED, each
# run draws others.
TARGETS ?= 1000000
PROXIED ?= 100000
paths:
	cd conformance && go test -count=1 -timeout 0 -v -run 'RoutersServeOnly|ServicesBehindProxies' \
		-targets $(TARGETS) -proxied $(PROXIED) -first $(or $(SEED),$(shell date +%s)) .

# Draws the pictures of docs/partitions.md and docs/regions.md again. A simulation replays exactly
# from its seed, so a picture changes only if the simulated behaviour changes.
PICTURES = clean-split flapping fail-open owner-in-minority split-beyond-forget three-way-split
pictures:
	for name in $(PICTURES); do \
		go run ./simulations -svg docs/partitions/$$name.svg $$name >/dev/null || exit; \
	done
	go run ./simulations -svg docs/partitions/majority-share.svg docs/partitions/majority-share.yaml >/dev/null
	for name in follow-the-user region-isolated; do \
		go run ./simulations -svg docs/regions/$$name.svg $$name >/dev/null || exit; \
	done

# Runs the Go benchmarks of the packages bucket and bench.
bench:
	go test -run '^$$' -bench . -benchmem ./bucket
	cd bench && go test -run '^$$' -bench . -benchmem .

# Checks the code with gofmt, go vet and staticcheck, and for known vulnerabilities.
lint:
	gofmt -l . | (! grep .)
	go vet -tags render,browser work
	go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 -tags render,browser $$(go list work)
	./.ci/vulncheck

# Runs gateways under traffic and faults, and prints a verdict at the end.
demo:
	go run ./cmd/demo
