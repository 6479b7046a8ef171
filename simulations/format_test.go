package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	countsync "github.com/weir-go/weir/sync"
	"github.com/weir-go/weir/weirtest"
)

func TestBundledScenariosReadBackAsWritten(t *testing.T) {
	all, err := bundledScenarios()
	require.NoError(t, err)
	for _, s := range all {
		again, err := parse(s.Name, s.yaml())
		require.NoError(t, err, "%s", s.yaml())
		require.Equal(t, s, again, "%s", s.yaml())
	}
}

// whole is a scenario file that sets most of the fields.
const whole = `
about: Everything
  at once.
seed: 9
lasts: 2m
membership: gossip
network: {latency: 1ms, jitter: 500us, loss: 0.1%, duplicates: 0.25%}
nodes: {east: [a, b], west: [c]}
later: {west: [d]}
settings: {replicas: -1, timeout: 50ms, forget: 10s, expect: 3, max_keys: 4000, caps: {frame: 300, queued: 40, statements: 2}}
limits:
  - {name: api, algorithm: token_bucket, rate: 100, per: 10s, burst: 20, partition: fair_share, version: 3}
  - {name: streams, algorithm: in_flight, rate: 7}
  - {name: tokens, rate: 50, per: 24h}
  - {name: logins, rate: 5, per: 1m, ban: {denials: 3, within: 10s, for: [1m, 1h]}}
  - {name: calls, rate: 5, per: 1m, pauses: true}
load:
  - {limit: api, keys: 10, zipf: 1.1, from: [a, b], rate: 50/s, units: 2, begins: 1s, ends: 90s}
  - {limit: api, burst: 5, at: 30s, repeat: {every: 10s, until: 45s}}
  - {limit: api, adversary: true}
  - {limit: streams, rate: 9/s, keeps: 3s}
  - {limit: streams, rate: 2/s, keeps: 40s, ttl: 20s}
  - {limit: tokens, rate: 8/s, settles: 250ms}
  - {limit: logins, rate: 1/s}
  - {limit: calls, rate: 1/s, pauses: 5s}
faults:
  - {at: 70s, start: d}
  - {at: 10s, split: [[a, b], [c]], for: 2s, repeat: {every: 20s, until: 30s}}
  - {at: 40s, cut: {from: a, to: b}, breaks: true}
  - {at: 45s, split: [[a, b], [c]], breaks: true, for: 1s}
  - {at: 41s, link: {from: a, latency: 20ms}}
  - {at: 42s, heal: true}
  - {at: 50s, kill: [a, c], for: 500ms}
  - {at: 60s, leave: b}
  - {at: 61s, freeze: [a], for: 3s}
  - {at: 65s, skew: [a, c], by: -2m}
  - {at: 66s, slow: [a, c], pauses: 60ms, for: 2s}
  - {at: 69s, slow: west, pauses: 250ms, every: 800ms}
`

func TestFileHasEveryScenarioField(t *testing.T) {
	s, err := parse("some/where/whole.yaml", []byte(whole))
	require.NoError(t, err)
	network := weirtest.Link{Latency: time.Millisecond, Jitter: 500 * time.Microsecond, Loss: 0.001, Duplicates: 0.0025}
	slow := network
	slow.Latency = 20 * time.Millisecond
	sides := [][]string{{"a", "b"}, {"c"}}
	require.Equal(t, &Scenario{
		Name: "whole", About: "Everything at once.", Seed: 9, Lasts: 2 * time.Minute, Gossip: true, Network: network,
		Nodes: []Node{{Name: "a", Region: "east"}, {Name: "b", Region: "east"}, {Name: "c", Region: "west"}, {Name: "d", Region: "west", Later: true}},
		Settings: Settings{
			Replicas: -1, Expect: 3, Timeout: 50 * time.Millisecond, Forget: 10 * time.Second, MaxKeys: 4000,
			Caps: countsync.Caps{Frame: 300, Queued: 40, Statements: 2},
		},
		Limits: []weir.Limit{
			{Name: "api", Algorithm: weir.TokenBucket, Rate: 100, Per: 10 * time.Second, Burst: 20, Partition: weir.FairShare, Version: 3},
			{Name: "streams", Algorithm: weir.InFlight, Rate: 7},
			{Name: "tokens", Rate: 50, Per: 24 * time.Hour},
			{Name: "logins", Rate: 5, Per: time.Minute, Ban: weir.Ban{Denials: 3, Within: 10 * time.Second, For: weir.BanLengths{time.Minute, time.Hour}}},
			{Name: "calls", Rate: 5, Per: time.Minute, Pauses: true},
		},
		Loads: []Load{
			{Limit: "api", Keys: 10, Zipf: 1.1, From: []string{"a", "b"}, Rate: 50, Units: 2, Begins: time.Second, Ends: 90 * time.Second},
			{Limit: "api", Burst: 5, Begins: 30 * time.Second},
			{Limit: "api", Burst: 5, Begins: 40 * time.Second},
			{Limit: "api", Adversary: true},
			{Limit: "streams", Rate: 9, Keeps: 3 * time.Second},
			{Limit: "streams", Rate: 2, Keeps: 40 * time.Second, TTL: 20 * time.Second},
			{Limit: "tokens", Rate: 8, Settles: 250 * time.Millisecond},
			{Limit: "logins", Rate: 1},
			{Limit: "calls", Rate: 1, Pauses: 5 * time.Second},
		},
		Faults: []Fault{
			{At: 10 * time.Second, Kind: FaultSplit, Sides: sides},
			{At: 12 * time.Second, Kind: FaultHeal},
			{At: 30 * time.Second, Kind: FaultSplit, Sides: sides},
			{At: 32 * time.Second, Kind: FaultHeal},
			{At: 40 * time.Second, Kind: FaultCut, From: "a", To: "b", Breaks: true},
			{At: 41 * time.Second, Kind: FaultLink, From: "a", Link: slow},
			{At: 42 * time.Second, Kind: FaultHeal},
			{At: 45 * time.Second, Kind: FaultSplit, Sides: sides, Breaks: true},
			{At: 46 * time.Second, Kind: FaultHeal},
			{At: 50 * time.Second, Kind: FaultKill, Nodes: []string{"a", "c"}},
			{At: 50*time.Second + 500*time.Millisecond, Kind: FaultStart, Nodes: []string{"a", "c"}},
			{At: 60 * time.Second, Kind: FaultLeave, Nodes: []string{"b"}},
			{At: 61 * time.Second, Kind: FaultFreeze, Nodes: []string{"a"}},
			{At: 64 * time.Second, Kind: FaultThaw, Nodes: []string{"a"}},
			{At: 65 * time.Second, Kind: FaultSkew, Nodes: []string{"a", "c"}, By: -2 * time.Minute},
			{At: 66 * time.Second, Kind: FaultSlow, Nodes: []string{"a", "c"}, Pauses: 60 * time.Millisecond, Every: 100 * time.Millisecond},
			{At: 68 * time.Second, Kind: FaultSlow, Nodes: []string{"a", "c"}},
			{At: 69 * time.Second, Kind: FaultSlow, Nodes: []string{"c", "d"}, Pauses: 250 * time.Millisecond, Every: 800 * time.Millisecond},
			{At: 70 * time.Second, Kind: FaultStart, Nodes: []string{"d"}},
		},
	}, s)
	again, err := parse(s.Name, s.yaml())
	require.NoError(t, err, "%s", s.yaml())
	require.Equal(t, s, again)
}

// small is a valid file, of which the tests below change one part.
const small = `about: A test.
lasts: 1m
nodes: [alpha, beta, gamma]
later: [delta]
limits: [{name: api, rate: 10, per: 5s}]
load: [{limit: api, rate: 5/s}]
faults: []
`

func TestSmallFileIsValid(t *testing.T) {
	s, err := parse("small.yaml", []byte(small))
	require.NoError(t, err)
	require.Equal(t, &Scenario{
		Name: "small", About: "A test.", Seed: 1, Lasts: time.Minute,
		Network: weirtest.Link{Latency: 500 * time.Microsecond, Jitter: 200 * time.Microsecond},
		Nodes:   []Node{{Name: "alpha"}, {Name: "beta"}, {Name: "gamma"}, {Name: "delta", Later: true}},
		Limits:  []weir.Limit{{Name: "api", Rate: 10, Per: 5 * time.Second}},
		Loads:   []Load{{Limit: "api", Rate: 5}},
	}, s)
}

func TestInvalidFileIsRefusedWithPlaceAndRemedy(t *testing.T) {
	for _, c := range []struct{ about, old, new, want string }{
		{"an unknown field", "lasts:", "last:", "x.yaml:1:1: lasts is missing\nx.yaml:2:1: unknown field \"last\": did you mean \"lasts\"?"},
		{"no end", "lasts: 1m", "lasts: 10ms", `x.yaml:2:8: lasts is 10ms: use 1s to 24h0m0s`},
		{"an unknown membership", "lasts: 1m", "lasts: 1m\nmembership: gosip", `x.yaml:3:13: unknown membership "gosip": did you mean "gossip"?`},
		{"a network that loses more than everything", "lasts: 1m", "lasts: 1m\nnetwork: {loss: 200%}", `x.yaml:3:17: loss is 200%: use 0% to 100%`},
		{"a setting that the library refuses", "lasts: 1m", "lasts: 1m\nsettings: {replicas: 9}", `x.yaml:3:11: weir: invalid Config: Replicas is 9: use 0 for 1, -1 for none, or 1 to 8`},
		{"a wait that the library refuses", "lasts: 1m", "lasts: 1m\nsettings: {timeout: 1us, forget: 1ms}", "x.yaml:3:11: weir: invalid Config: Timeout is 1µs: use 0 for 100ms, or 100µs to 1m\nweir: invalid Config: Forget is 1ms: use 0 for 5m0s, or 1s and more"},
		{"a frame that has no room", "lasts: 1m", "lasts: 1m\nsettings: {caps: {frame: 20}}", `x.yaml:3:26: frame is 20: use 64 to 2147483647`},

		{"no nodes", "nodes: [alpha, beta, gamma]", "nodes: []", `x.yaml:3:8: no node runs at the beginning: name one or more`},
		{"shares of regions without nodes", "nodes: [alpha, beta, gamma]\nlater: [delta]", "nodes: []\nsettings: {region_shares: {east: 70, west: 30}}", `x.yaml:3:8: no node runs at the beginning: name one or more`},
		{"a node twice", "later: [delta]", "later: [beta]", `x.yaml:4:9: node "beta" is used twice: give each node its own name`},
		{"a name that no host has", "[delta]", "[a/b]", `x.yaml:4:9: node "a/b": use letters, digits, dots and dashes, at most 63`},
		{"a node without a region", "later: [delta]", "later: {east: [delta]}", "x.yaml:3:9: node \"alpha\" has no region, but other nodes have one: give each node a region\nx.yaml:3:16: node \"beta\" has no region, but other nodes have one: give each node a region\nx.yaml:3:22: node \"gamma\" has no region, but other nodes have one: give each node a region"},

		{"all that the library finds", "rate: 10, per: 5s", "rate: 0, per: 5us, burst: 3", "x.yaml:5:17: weir: invalid Limit: Rate is 0: it must be from 1 to 1000000000000 units\nPer is 5µs: it must be from 1ms to 8784h0m0s\nBurst is 3: leave Burst zero, because only token_bucket and leaky_bucket have a Burst"},
		{"an algorithm in another spelling", "rate: 10,", "rate: 10, algorithm: SlidingLog,", `x.yaml:5:43: unknown algorithm "SlidingLog": did you mean "sliding_log"?`},
		{"a limit twice", "per: 5s}]", "per: 5s}, {name: api, rate: 5, per: 5s}]", `x.yaml:5:49: limit "api" is used twice: give each limit its own name`},
		{"the name of the run's own limit", "per: 5s}]", "per: 5s}, {name: witness, rate: 5, per: 5s}]", `x.yaml:5:49: limit "witness": each run adds a limit with this name; use another name`},
		{"no limit", "limits: [{name: api, rate: 10, per: 5s}]", "limits: []", "x.yaml:6:16: unknown limit \"api\": there are none"},

		{"an unknown limit", "limit: api", "limit: apy", `x.yaml:6:16: unknown limit "apy": did you mean "api"?`},
		{"a load from an unknown node", "rate: 5/s", "rate: 5/s, from: [bta]", `x.yaml:6:39: unknown node "bta": did you mean "beta"?`},
		{"a rate of nothing", "rate: 5/s", "rate: 5", `x.yaml:6:27: rate is 5: add a period, like 5/s`},
		{"a text that is no rate", "rate: 5/s", "rate: fast/s", `x.yaml:6:27: rate is "fast/s": use a rate, like 50/s`},
		{"a rate in no time", "rate: 5/s", "rate: 5/0s", `x.yaml:6:27: rate is "5/0s": use a rate, like 50/s`},
		{"a rate out of range", "rate: 5/s", "rate: 5/1ns", `x.yaml:6:27: rate is 5/1ns: use 0.001/s to 100000/s`},
		{"a load of two kinds", "rate: 5/s", "rate: 5/s, adversary: true", `x.yaml:6:16: a load has one of rate, burst and adversary: true; this load has 2 of them`},
		{"a load of no kind", ", rate: 5/s", "", `x.yaml:6:16: a load has one of rate, burst and adversary: true; this load has 0 of them`},
		{"a burst at no time", "rate: 5/s", "burst: 5", `x.yaml:6:8: at is missing`},
		{"a burst with an end", "rate: 5/s", "burst: 5, at: 5s, ends: 9s", `x.yaml:6:45: "ends" applies to a steady load: a burst has no end`},
		{"a steady load at a moment", "rate: 5/s", "rate: 5/s, at: 5s", `x.yaml:6:36: "at" is the time of a burst: use "begins" and "ends"`},
		{"a load beyond the end", "rate: 5/s", "rate: 5/s, begins: 1m", `x.yaml:6:40: "begins" is 1m: the scenario ends at 1m`},
		{"a load that ends beyond the end", "rate: 5/s", "rate: 5/s, ends: 2m", `x.yaml:6:38: "ends" is 2m: use a time after the load begins, and up to 1m`},
		{"a load that ends before it begins", "rate: 5/s", "rate: 5/s, begins: 9s, ends: 8s", `x.yaml:6:50: "ends" is 8s: use a time after the load begins, and up to 1m`},
		{"popularity without keys", "rate: 5/s", "rate: 5/s, zipf: 1.2", `x.yaml:6:38: zipf is the popularity of keys: set keys to 2 or more`},
		{"popularity of one key", "rate: 5/s", "rate: 5/s, keys: 1, zipf: 1.2", `x.yaml:6:47: zipf is the popularity of keys: set keys to 2 or more`},
		{"asks that no limit can grant", "rate: 5/s", "rate: 5/s, units: 11", `x.yaml:6:39: "units" is 11: api never grants more than 10 at a time`},
		{"more asks than a run can hold", "rate: 5/s", "adversary: true, keys: 1000000", `x.yaml:6:16: the loads up to this one send about 888000000 checks: use at most 20000000; lower a rate, or set more units for each check`},

		{"units that are held of a rate", "rate: 5/s", "rate: 5/s, keeps: 1s", `x.yaml:6:39: "keeps" applies to an in_flight limit: api is sliding_window`},
		{"units with a ttl, but without keeps", "rate: 10, per: 5s}]\nload: [{limit: api, rate: 5/s", "rate: 10, algorithm: in_flight}]\nload: [{limit: api, rate: 5/s, ttl: 5s", `x.yaml:6:37: "ttl" applies to units that clients hold: set the maximum time with "keeps"`},
		{"units in flight without keeps", "rate: 10, per: 5s", "rate: 10, algorithm: in_flight", `x.yaml:6:16: api is in_flight: set the maximum time for which units are held with "keeps"`},
		{"units in flight that are settled", "rate: 10, per: 5s}]\nload: [{limit: api, rate: 5/s", "rate: 10, algorithm: in_flight}]\nload: [{limit: api, rate: 5/s, settles: 1s", `x.yaml:6:41: api is in_flight: its units are held, not settled; set the maximum time with "keeps"`},
		{"units that are spent and reserved", "rate: 5/s}", "rate: 5/s}, {limit: api, rate: 5/s, settles: 1s}", `x.yaml:6:16: units of api are reserved by another load: set "settles", the maximum time until these are settled`},
		{"an adversary that reserves", "rate: 5/s", "adversary: true, settles: 1s", `x.yaml:6:32: an adversary spends units, and cannot hold or reserve them`},
		{"a rate in no time", "rate: 10, per: 5s", "rate: 10", `x.yaml:5:10: per is missing`},

		{"a fault on a node that does not exist", "faults: []", "faults: [{at: 5s, kill: [gama]}]", `x.yaml:7:26: unknown node "gama": did you mean "gamma"?`},
		{"a fault on the wrong node", "faults: []", "faults: [{at: 5s, freeze: [db-1, alpha]}]", `x.yaml:7:28: unknown node "db-1": known are alpha, beta, gamma, delta`},
		{"a fault beyond the end", "faults: []", "faults: [{at: 3m, heal: true}]", `x.yaml:7:15: heal at 3m: the scenario ends at 1m`},
		{"the end of a fault beyond the end", "faults: []", "faults: [{at: 50s, freeze: [beta], for: 20s}]", `x.yaml:7:41: thaw at 1m10s: the scenario ends at 1m`},
		{"a fault before the beginning", "faults: []", "faults: [{at: -1s, heal: true}]", `x.yaml:7:15: at is -1s: use 0s to 24h0m0s`},
		{"a fault at no time", "faults: []", "faults: [{heal: true}]", `x.yaml:7:10: at is missing`},
		{"a fault that does nothing", "faults: []", "faults: [{at: 5s}]", `x.yaml:7:10: the fault has no kind: add one of split, heal, cut, link, kill, start, leave, freeze, thaw, skew, slow, lose, revert`},
		{"two faults in one", "faults: []", "faults: [{at: 5s, heal: true, kill: beta}]", `x.yaml:7:37: kill and heal in the same fault: write a fault for each`},
		{"an unknown fault", "faults: []", "faults: [{at: 5s, spilt: [[alpha], [beta]]}]", "x.yaml:7:10: the fault has no kind: add one of split, heal, cut, link, kill, start, leave, freeze, thaw, skew, slow, lose, revert\nx.yaml:7:19: unknown field \"spilt\": did you mean \"split\"?"},
		{"a node on two sides", "faults: []", "faults: [{at: 5s, split: [[alpha, beta], [beta, gamma]]}]", `x.yaml:7:26: node "beta" is named twice in the split: name each node once`},
		{"one side", "faults: []", "faults: [{at: 5s, split: [[alpha, beta]]}]", `x.yaml:7:26: the number of sides is 1: use two sides or more, like [[a, b], [c]]`},
		{"an empty side", "faults: []", "faults: [{at: 5s, split: [[alpha], []]}]", `x.yaml:7:26: a side of the split is empty: leave it out`},
		{"a cut without an end", "faults: []", "faults: [{at: 5s, cut: {from: beta}}]", `x.yaml:7:24: to is missing`},
		{"a cut from a node to itself", "faults: []", "faults: [{at: 5s, cut: {from: beta, to: beta}}]", `x.yaml:7:24: cut from "beta" to itself: name two different nodes`},
		{"a link that breaks", "faults: []", "faults: [{at: 5s, link: {from: beta, loss: 2%}, breaks: true}]", `x.yaml:7:57: "breaks" applies to split and cut, not to link`},
		{"a kill that breaks", "faults: []", "faults: [{at: 5s, kill: beta, breaks: false}]", `x.yaml:7:39: "breaks" applies to split and cut, not to kill`},
		{"a step by nothing", "faults: []", "faults: [{at: 5s, skew: beta, by: 0s}]", `x.yaml:7:35: the clock of "beta" is then off by 0s: use steps other than 0, whose sum is at most 720h`},
		{"a kill by some time", "faults: []", "faults: [{at: 5s, kill: beta, by: 1s}]", `x.yaml:7:35: "by" applies to skew, not to kill`},
		{"pauses of a kill", "faults: []", "faults: [{at: 5s, kill: beta, pauses: 1s}]", `x.yaml:7:39: "pauses" applies to slow, not to kill`},
		{"pauses of no length", "faults: []", "faults: [{at: 5s, slow: beta}]", `x.yaml:7:10: pauses is missing`},
		{"pauses without an end", "faults: []", "faults: [{at: 5s, slow: beta, pauses: 100ms}]", `x.yaml:7:39: the pauses take 100ms in every 100ms: use shorter pauses, or freeze the node`},
		{"an end of no pauses", "faults: []", "faults: [{at: 5s, slow: beta, pauses: 0s, for: 5s}]", `x.yaml:7:48: "for" has no effect: no fault undoes slow`},
		{"a heal for some time", "faults: []", "faults: [{at: 5s, heal: true, for: 1s}]", `x.yaml:7:36: "for" has no effect: no fault undoes heal`},
		{"a heal that is false", "faults: []", "faults: [{at: 5s, heal: false}]", `x.yaml:7:25: heal is false: write heal: true, or leave the fault out`},
		{"a kill of no node", "faults: []", "faults: [{at: 5s, kill: []}]", `x.yaml:7:25: kill of no node: name one or more`},
		{"a kill of a node that does not run yet", "faults: []", "faults: [{at: 5s, kill: delta}]", `x.yaml:7:25: kill of "delta" at 5s: the node is not running at that time`},
		{"a kill of a killed node", "faults: []", "faults: [{at: 6s, kill: beta}, {at: 5s, kill: beta}]", `x.yaml:7:25: kill of "beta" at 6s: the node is not running at that time`},
		{"a start of a running node", "faults: []", "faults: [{at: 5s, start: beta}]", `x.yaml:7:26: start of "beta" at 5s: the node is running at that time`},
		{"a thaw of a node that is not frozen", "faults: []", "faults: [{at: 5s, thaw: beta}]", `x.yaml:7:25: thaw of "beta" at 5s: the node is running at that time`},
		{"a thaw of a killed node", "faults: []", "faults: [{at: 5s, freeze: beta, for: 9s}, {at: 8s, kill: beta}]", `x.yaml:7:38: thaw of "beta" at 14s: the node is not running at that time`},
		{"a leave of a frozen node", "faults: []", "faults: [{at: 5s, freeze: beta}, {at: 6s, leave: beta}]", `x.yaml:7:50: leave of "beta" at 6s: the node is frozen at that time`},
		{"a node twice in a fault", "faults: []", "faults: [{at: 5s, kill: [beta, beta]}]", `x.yaml:7:25: kill names "beta" twice`},
		{"a repetition without end", "faults: []", "faults: [{at: 5s, heal: true, repeat: {every: 5s}}]", `x.yaml:7:39: until is missing`},
		{"a repetition beyond the end", "faults: []", "faults: [{at: 5s, heal: true, repeat: {every: 5s, until: 2m}}]", `x.yaml:7:58: until is 2m: use 5s to 1m0s`},
		{"a repetition too often", "faults: []", "faults: [{at: 5s, heal: true, repeat: {every: 1ms, until: 50s}}]", `x.yaml:7:47: the entry is repeated 45000 times: use at most 10000`},
		{"more faults than a run can have", "faults: []", "faults: [{at: 0s, kill: beta, for: 1ms, repeat: {every: 5ms, until: 50s}}]", `x.yaml:7:9: there are 20002 faults: use at most 10000`},
		{"no YAML", "faults: []", "faults: [", `x.yaml:8: not YAML: did not find expected node content`},
	} {
		text := strings.Replace(small, c.old, c.new, 1)
		require.NotEqual(t, small, text, c.about)
		_, err := parse("x.yaml", []byte(text))
		require.EqualError(t, err, c.want, c.about)
	}
}

func TestFrozenNodeCanBeKilled(t *testing.T) {
	_, err := parse("x.yaml", []byte(strings.Replace(small, "faults: []", "faults: [{at: 5s, freeze: beta}, {at: 6s, kill: beta, for: 1s}]", 1)))
	require.NoError(t, err)
}

func FuzzScenarioFileReadsBack(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte(small))
	f.Add(randomScenario(1).yaml())
	f.Add(randomPlanet(1).yaml())
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parse("x.yaml", text)
		if err != nil {
			return
		}
		again, err := parse("x.yaml", s.yaml())
		require.NoError(t, err, "%s", s.yaml())
		require.Equal(t, s, again, "%s", s.yaml())
	})
}
