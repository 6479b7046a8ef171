.PHONY: help test full alone busy manifests race flakes draws fuzz soak sim sim-regions sim-snapshots schedules paths pictures bench lint demo

# The tests of every module. A bare make runs it.
test:
	go test work

# Lists the targets.
help:
	@awk '/^#/ { sub(/^# ?/, ""); text = text (text ? " " : "") $$0; next } /^[A-Z_]+ / { next } \
		/^[a-z-]+:/ { sub(/:.*/, ""); printf "%-14s %s\n", $$0, text } { text = "" }' Makefile

# What the default run leaves out, as it shows a promise once more by costlier means.
full:
	WEIR_FULL=1 go test -timeout 30m $$(./.ci/packages full)

# What wants the machine for itself: networks of the system's own, which need root, nodes
# under siege, and gateways beside processes that leave the machine no idle time.
alone:
	go test -count=1 -run 'RealNetwork|LostPackets|Siege|BusyMachine' ./internal/processtests

# Fresh starts of three gateways beside seven busy processes for each core: so many rounds, and
# what each has admitted of 1,000 requests for a limit of 100. A round takes 4 s.
BUSY_ROUNDS ?= 40
busy:
	go test -count=1 -timeout 30m -v -run BusyMachine ./internal/processtests -busyrounds $(BUSY_ROUNDS)

# Renders deploy/testdata/rendered again, after a change of the chart, its values or a kustomization.
manifests:
	cd deploy && go test -count=1 -tags render -run Render . -update

# Packages with goroutines under the race detector.
race:
	go test -race -run Siege ./internal/processtests
	cd cmd/demo && go test -race .
	go test -race -timeout 15m $$(./.ci/packages raced) $$(./.ci/packages adapters)

# Tests that fail by chance: the default run, so many times under load, each fifth time under
# the race detector. FLAKES_OF="./cluster ." plays these packages alone.
FLAKES ?= 20
FLAKES_OF ?=
flakes:
	./.ci/flakes $(FLAKES) $(FLAKES_OF)

# What the tests draw at random is the same in each run. This draws others, and prints the
# seed with a failure.
draws:
	WEIR_SEED=$(or $(SEED),0) go test -count=1 $$(./.ci/packages drawn)

# A short run of every fuzz target; FUZZTIME=10m make fuzz for a long one each.
FUZZTIME ?= 10000x
fuzz:
	./.ci/fuzz $(FUZZTIME)

# A cluster of real processes under traffic and faults: nothing may grow, no promise may
# break. The same faults again: SEED=7 make soak.
SOAK ?= 10m
soak:
	go run ./cmd/demo -soak $(SOAK) $(if $(SEED),-seed $(SEED))

# Whole clusters in virtual time, each with other faults. SEED=7 make sim
# plays those of that seed and of those that follow.
SIMS ?= 2000
SEED ?=
sim:
	go run ./simulations -n $(SIMS) $(if $(SEED),-seed $(SEED))

# The same, of regions that share limits and are cut from each other.
SIMS_REGIONS ?= 1000
sim-regions:
	go run ./simulations -regions -n $(SIMS_REGIONS) $(if $(SEED),-seed $(SEED))

# The same, in which nodes write snapshots, and all stop once or twice.
SIMS_SNAPSHOTS ?= 1000
sim-snapshots:
	go run ./simulations -snapshots -n $(SIMS_SNAPSHOTS) $(if $(SEED),-seed $(SEED))

# The smallest clusters that lose, repeat and mix up frames, crash and split: each copy has
# every unit once that anybody has heard of. Some 200 a second on a core. After these, holds
# and reservations in healthy clusters, each exact. Some 150 a second. Without a SEED each run
# plays others.
SCHEDULES ?= 100000
HOLD_SCHEDULES ?= 10000
schedules:
	go test ./sync -count=1 -timeout 0 -run '^TestEveryUnitCountsOnceUnderFaults$$' \
		-rapid.checks $(SCHEDULES) -rapid.nofailfile -rapid.seed $(or $(SEED),0)
	go test ./internal/clustertests -count=1 -timeout 0 -run SchedulesOfHolds \
		-schedules $(HOLD_SCHEDULES) $(if $(SEED),-first $(SEED))

# Targets that no client library would send, for each router, and through nginx and Caddy: each
# handler that is reached was judged by its rule. Without a SEED each run plays others.
TARGETS ?= 1000000
PROXIED ?= 100000
paths:
	cd conformance && go test -count=1 -timeout 0 -v -run 'RoutersServeOnly|ServicesBehindProxies' \
		-targets $(TARGETS) -proxied $(PROXIED) -first $(or $(SEED),$(shell date +%s)) .

# The pictures of docs/partitions.md and docs/regions.md. A run replays exactly from its seed, so that
# they change only when what they show does.
PICTURES = clean-split flapping fail-open owner-in-minority split-beyond-forget three-way-split
pictures:
	for name in $(PICTURES); do \
		go run ./simulations -svg docs/partitions/$$name.svg $$name >/dev/null || exit; \
	done
	go run ./simulations -svg docs/partitions/majority-share.svg docs/partitions/majority-share.yaml >/dev/null
	for name in follow-the-user region-isolated; do \
		go run ./simulations -svg docs/regions/$$name.svg $$name >/dev/null || exit; \
	done

# The Go benchmarks of the core.
bench:
	go test -run '^$$' -bench . -benchmem ./bucket
	cd bench && go test -run '^$$' -bench . -benchmem .

# gofmt, go vet, staticcheck and known vulnerabilities.
lint:
	gofmt -l . | (! grep .)
	go vet -tags render,browser work
	go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 -tags render,browser $$(go list work)
	./.ci/vulncheck

# Gateways under traffic and faults, with a verdict at the end.
demo:
	go run ./cmd/demo
