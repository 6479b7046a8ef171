package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testenv"
)

// mutant is a deliberate fault in the product. The judge must report a violation of the
// invariant in the field breaks, and must report no violation in the same scenario
// without the mutant.
type mutant struct {
	name     string
	scenario string // name of its scenario in mutantScenarios
	breaks   string // the invariant
	edits    []edit
}

// edit replaces the text in the field old, which the file must contain once. In the text
// new, MUTANT is true while this mutant is played. While MUTANT is false, the text new
// must have the effect of the text old.
type edit struct {
	file     string // path from the root of the module
	old, new string
}

// One program contains all mutants, because building the product for each took longer
// than the rest of this test. mutantEnv contains the number of the mutant that a process
// plays, counted from one.
const (
	mutantEnv   = "WEIR_SIMULATIONS_MUTANT"
	switchFile  = "internal/mutant/mutant.go" // no commit has this file
	switchesFor = `package mutant

import "os"

var played = os.Getenv("` + mutantEnv + `")

// Played reports whether this process plays a mutant.
func Played(mutant string) bool { return mutant == played }
`
)

var mutants = []mutant{
	{"a grant is credited without being debited", "apart", boundInvariant, []edit{{
		"sync/holdings.go", "		own -= x.accounts[i].granted\n",
		"		if !MUTANT {\n			own -= x.accounts[i].granted\n		}\n",
	}}},
	{"a grant's term outlives the time that it is kept for", "apart", boundInvariant, []edit{{
		"sync/exchange.go", "a.received, a.receivedUntil = st.Granted, a.sent+term",
		"a.received, a.receivedUntil = st.Granted, a.sent+term\n	if MUTANT {\n		a.receivedUntil += 3 * term\n	}",
	}}},
	{"each side has the full limit", "split", boundInvariant, []edit{{
		"internal/view/share.go", "	case v.Complete:\n", "	case v.Complete || MUTANT && v.Side > 0:\n",
	}}},
	{"the owner has what rounding leaves of a minority's parts", "few", boundInvariant, []edit{{
		"internal/view/share.go", "	if partition == wire.FairShare {\n", "	if MUTANT || partition == wire.FairShare {\n",
	}}},
	{"one spend in a hundred dropped", "split", accounted, []edit{{
		"sync/stream.go", "	own.spent += units\n",
		"	if spends++; MUTANT && spends%100 == 0 {\n		return\n	}\n	own.spent += units\n",
	}, {
		"sync/stream.go", "// addOwn adds to this node's own tally",
		"var spends int\n\n// addOwn adds to this node's own tally",
	}}},
	{"the roster forgets at once", "split", boundInvariant, []edit{{
		"cluster/detect/roster.go", "e.IsDead(now) && isDue(e)", "e.IsDead(now) && (MUTANT || isDue(e))",
	}}},
	{"a spend counted twice", "split", accounted, []edit{{
		"sync/inbound.go", "x.store.SpendElsewhere(id, l, x.now, units)",
		"if MUTANT {\n				units *= 2\n			}\n			x.store.SpendElsewhere(id, l, x.now, units)",
	}}},
	{"spends from before a reset count where the reset arrives later", "split", accounted, []edit{{
		"sync/inbound.go", "	if x.raise(id, number, made, x.now, x.senderStamp()) {\n",
		"	if x.raise(id, number, made, x.now, x.senderStamp()) || MUTANT && number < x.resets.byID[id].number {\n",
	}}},
	{"returned units of a lease stay spent", "lent", accounted, []edit{{
		"bucket/store.go", "		refunded, changed := l.refund(&c.cell, g, now, units, r, false, Lease{})\n",
		"		back := units\n		if MUTANT {\n			back = 0\n		}\n		refunded, changed := l.refund(&c.cell, g, now, back, r, false, Lease{})\n",
	}, {
		"bucket/store.go", "refunded < units && l.Algorithm == SlidingLog",
		"!MUTANT && refunded < units && l.Algorithm == SlidingLog",
	}}},
	{"a thawed owner keeps its authority", "thaw", oneAuthority, []edit{{
		"internal/view/route.go", "v.held.Contains(id.Hi) && !(v.Yields() && v.Reaches(owner)):",
		"v.held.Contains(id.Hi) && (MUTANT || !(v.Yields() && v.Reaches(owner))):",
	}, {
		"internal/handover/leave.go", "	if v.Settled || !v.HasAny(view.Held) {\n",
		"	if v.Settled || !v.HasAny(view.Held) || MUTANT && v.Yields() {\n",
	}}},
	{"joiners weigh fully during a split", "scaled", boundInvariant, []edit{{
		"internal/view/view.go",
		"	if v.Side < len(v.Points) {\n		return\n	}\n	for i, m := range v.Members {",
		"	if !MUTANT && v.Side < len(v.Points) {\n		return\n	}\n	for i, m := range v.Members {",
	}, {
		"internal/handover/leave.go", "} else if v.Side < len(v.Points) || v.Yields() {",
		"} else if !MUTANT && v.Side < len(v.Points) || v.Yields() {",
	}, {
		"internal/handover/leave.go", "		if gives && !h.complete[m] {",
		"		if gives && (!MUTANT || v.Next[i] >= 0) && !h.complete[m] {",
	}}},
	{"a node that leaves alone has the whole limit", "left", boundInvariant, []edit{{
		"internal/view/share.go",
		"	switch {\n	case partition == wire.FailOpen:\n		return Share{All: true}, wire.FailedOpen\n	case partition == wire.FailClosed:\n",
		"	switch {\n	case partition == wire.FailOpen || MUTANT && v.leaves():\n		return Share{All: true}, wire.FailedOpen\n	case partition == wire.FailClosed:\n",
	}}},
	{"a member that does not answer in time is gone", "slow", absenceInvariant, []edit{{
		"weirtest/peer.go", "	p.owed = sent\n	p.ping()\n",
		"	if MUTANT {\n		p.owner.recordChange(p.owner.table.RecordFailure(p.to.name, sent))\n		p.owner.refresh()\n	}\n	p.owed = sent\n	p.ping()\n",
	}}},
	{"a member that does not answer in time is gone, with real frames", "slow-gossip", absenceInvariant, []edit{{
		"cluster/link.go", "		l.post(eventMissed)\n",
		"		l.post(eventMissed)\n		if MUTANT {\n			go l.peers.step(l, func(c *detect.Connectivity) bool { return c.RecordFailure(l.name, time.Now()) })\n		}\n",
	}}},
	{"a member that is silent for a fifth of a second is gone", "slow", absenceInvariant, []edit{{
		"cluster/detect/connectivity.go", "	if !m.silence.Check(SilenceTimeout+",
		"	timeout := SilenceTimeout\n	if MUTANT {\n		timeout = StallTimeout\n	}\n	if !m.silence.Check(timeout+",
	}}},
	{"a paused member is not waited for", "quota", exactInvariant, []edit{{
		"internal/check/attempt.go", "		a.Wait = firstWait(all)\n",
		"		a.Wait = firstWait(all)\n		if MUTANT {\n			a.Wait = timeout / 4\n		}\n",
	}}},
	{"a new owner asks no member for its holds", "flight", heldInvariant, []edit{{
		"internal/holds/learn.go", "		h.ask(ctx, v, page{end: parts, ranges: ranges})\n",
		"		if !MUTANT {\n			h.ask(ctx, v, page{end: parts, ranges: ranges})\n		}\n",
	}, {
		"internal/holds/learn.go", "answered := h.ask(ctx, v, ", "answered := MUTANT || h.ask(ctx, v, ",
	}}},
	{"each side of a split may hold the whole limit", "flight-split", heldInvariant, []edit{{
		"internal/holds/holds.go", "			most = part.Rate\n",
		"			if !MUTANT {\n				most = part.Rate\n			}\n",
	}}},
	{"a release is not sent", "flight", backInvariant, []edit{{
		"internal/holds/holds.go", "	if at, held := h.table.release(o); held {\n		h.release(o, at)\n",
		"	if at, held := h.table.release(o); held && !MUTANT {\n		h.release(o, at)\n",
	}}},
	{"units of a dead holder stay held", "flight", backInvariant, []edit{{
		"internal/holds/table.go", "return now-s.renewed(i) > int64(Term) }\n",
		"return now-s.renewed(i) > int64(Term) && (!MUTANT || now-s.renewed(i) > 100*int64(Term)) }\n",
	}}},
	{"a reservation is settled twice where it was made", "budget", settledOnceInvariant, []edit{{
		"internal/reserve/reserve.go", "	v.of.cfg.Checks.DoInBackground(op, &a)\n",
		"	v.of.cfg.Checks.DoInBackground(op, &a)\n	if MUTANT {\n		v.of.cfg.Checks.DoInBackground(op, &a)\n	}\n",
	}}},
	{"each text of a reservation settles it", "budget", settledOnceInvariant, []edit{{
		"internal/reserve/reserve.go", "	err := v.spendMarker(ctx)\n",
		"	var err error\n	if !MUTANT {\n		err = v.spendMarker(ctx)\n	}\n",
	}}},
	{"loaded units are counted, but not tracked", "stopped", accounted, []edit{{
		"start.go", "	n.handover.Track()\n", "	if !MUTANT {\n		n.handover.Track()\n	}\n",
	}}},
	{"a node that leaves writes no snapshot", "stopped", accounted, []edit{{
		"node.go", "		saved = n.snapshots.Leave(ctx)",
		"		if !MUTANT {\n			saved = n.snapshots.Leave(ctx)\n		}",
	}}},
	{"a leaving node continues after its last snapshot", "stopped", accounted, []edit{{
		"node.go", "	err := errors.Join(n.cluster.Leave(ctx), saved)\n",
		"	if MUTANT {\n		wait, stop := context.WithTimeout(ctx, 90e6)\n		<-wait.Done()\n		stop()\n	}\n	err := errors.Join(n.cluster.Leave(ctx), saved)\n",
	}}},
	{"an owner lends kept units", "kept", keptInvariant, []edit{{
		"bucket/lend.go", "	n, capacity := nonNegative(units), l.usable()\n",
		"	n, capacity := nonNegative(units), l.usable()\n	if MUTANT {\n		capacity = l.capacity()\n	}\n",
	}}},
	{"a cached denial of other checks denies a critical check", "kept", keptInvariant, []edit{{
		"internal/wire/wire.go", "	if l.Keep != 0 {", "	if l.Keep != 0 && !MUTANT {",
	}}},
	{"a region releases kept units", "keeps-moving", boundInvariant, []edit{{
		"sync/holdings.go", "bucket.Limit{Rate: x.whole.Capacity(), Keep: x.keep}\n",
		"bucket.Limit{Rate: x.whole.Capacity(), Keep: x.keep}\n	if MUTANT {\n		whole.Keep = 0\n	}\n",
	}}},
	{"an owner admits a banned key", "banned", bannedInvariant, []edit{{
		"internal/owner/ban.go", "op == wire.OpWait) && o.denyBanned(", "op == wire.OpWait) && !MUTANT && o.denyBanned(",
	}}},
	{"half of the denials ban a key", "banned", bannedInvariant, []edit{{
		"internal/owner/ban.go", "	if denials.Allowed && denials.Remaining > 0 {\n",
		"	if denials.Allowed && denials.Remaining > 0 && (!MUTANT || denials.Remaining > a.Limit.Rate/2) {\n",
	}}},
	{"the bans of both sides of a split add up", "banned-split", bannedInvariant, []edit{{
		"sync/merge.go", "	if times.maxOfCopies {\n", "	if times.maxOfCopies && !MUTANT {\n",
	}}},
	{"snapshots have no tombstones of resets", "reverted", accounted, []edit{{
		"sync/snapshot.go", "!known || !r.isEffective(now) {\n", "!known || !r.isEffective(now) || MUTANT {\n",
	}}},
}

// mutantScenarios returns the scenarios that reveal the mutants. No scenario breaks an
// invariant if no mutant is played.
func mutantScenarios() map[string]*Scenario {
	split := newScene(5,
		Fault{At: 5 * time.Second, Kind: FaultSplit, Sides: [][]string{{"a", "b"}, {"c", "d", "e"}}},
		Fault{At: 25 * time.Second, Kind: FaultHeal})
	thaw := newScene(3,
		Fault{At: 5 * time.Second, Kind: FaultFreeze, Nodes: []string{"a"}},
		Fault{At: 24 * time.Second, Kind: FaultThaw, Nodes: []string{"a"}})
	thaw.Forget = 2 * time.Second
	split.Seed = 3
	split.Limits = append(split.Limits, weir.Limit{Name: "fair", Algorithm: weir.SlidingLog, Rate: 200, Per: time.Second, Partition: weir.FairShare})
	split.Loads = append(split.Loads, Load{Limit: "fair", Rate: 400})
	lent := newScene(5)
	lent.Hot = 100
	scaled := newScene(5, Fault{At: 5 * time.Second, Kind: FaultSplit, Sides: [][]string{{"a", "b", "f", "g", "h", "i"}, {"c", "d", "e"}}},
		Fault{At: 26 * time.Second, Kind: FaultHeal})
	scaled.Loads[0].Rate = 1200
	later := []string{"f", "g", "h", "i"}
	for _, name := range later {
		scaled.Nodes = append(scaled.Nodes, Node{Name: name, Later: true})
	}
	scaled.Faults = slices.Insert(scaled.Faults, 1, Fault{At: 7 * time.Second, Kind: FaultStart, Nodes: later})
	// East returns the units of west 11 s after the regions are cut apart.
	apart := newScene(4, Fault{At: 10 * time.Second, Kind: FaultSplit, Sides: [][]string{{"a", "b"}, {"c", "d"}}},
		Fault{At: 26 * time.Second, Kind: FaultHeal})
	for i := range apart.Nodes {
		apart.Nodes[i].Region = []string{"east", "west"}[i/2]
	}
	apart.Limits[0].Scope = weir.Global
	apart.Loads = []Load{
		{Limit: "calls", From: []string{"a", "b"}, Rate: 400},
		{Limit: "calls", From: []string{"c", "d"}, Rate: 400, Begins: 12 * time.Second},
	}
	few := newScene(3, Fault{At: 5 * time.Second, Kind: FaultSplit, Sides: [][]string{{"a", "b"}, {"c"}}},
		Fault{At: 25 * time.Second, Kind: FaultHeal})
	few.Limits[0].Rate = 1
	few.Loads = []Load{{Limit: "calls", Keys: 6, Rate: 100}}
	left := newScene(3, Fault{At: 5 * time.Second, Kind: FaultSplit, Sides: [][]string{{"a", "b"}, {"c"}}},
		Fault{At: 8 * time.Second, Kind: FaultLeave, Nodes: []string{"c"}})
	var everyone []string
	for _, n := range newScene(5).Nodes {
		everyone = append(everyone, n.Name)
	}
	slow := newScene(5, Fault{At: 5 * time.Second, Kind: FaultSlow, Nodes: everyone, Pauses: 220 * time.Millisecond, Every: 500 * time.Millisecond},
		Fault{At: 20 * time.Second, Kind: FaultSlow, Nodes: everyone})
	gossip := slow.clone()
	gossip.Gossip = true
	quota := newScene(5, Fault{At: 5 * time.Second, Kind: FaultSlow, Nodes: everyone, Pauses: 60 * time.Millisecond, Every: 100 * time.Millisecond})
	flight := newScene(5,
		Fault{At: 2 * time.Second, Kind: FaultLeave, Nodes: []string{"a"}},
		Fault{At: 4 * time.Second, Kind: FaultStart, Nodes: []string{"a"}},
		Fault{At: 8 * time.Second, Kind: FaultKill, Nodes: []string{"b"}})
	flight.Lasts = 15 * time.Second
	cut := newScene(5,
		Fault{At: 3 * time.Second, Kind: FaultSplit, Sides: [][]string{{"a", "b"}, {"c", "d", "e"}}},
		Fault{At: 9 * time.Second, Kind: FaultHeal})
	cut.Lasts = 12 * time.Second
	for _, s := range []*Scenario{flight, cut} {
		s.Limits = append(s.Limits, weir.Limit{Name: "streams", Algorithm: weir.InFlight, Rate: 10, Partition: weir.FairShare})
		s.Loads = append(s.Loads, Load{Limit: "streams", Keys: 40, Rate: 800, Keeps: 2 * time.Second})
		s.Network.Latency = 4 * time.Millisecond // until this latency has passed, no member has reported its holds
	}
	budget := newScene(3)
	budget.Limits = append(budget.Limits, weir.Limit{Name: "tokens", Algorithm: weir.FixedWindow, Rate: 100_000, Per: 24 * time.Hour})
	budget.Loads = append(budget.Loads, Load{Limit: "tokens", Keys: 3, Units: 50, Rate: 30, Settles: 3 * time.Second})
	stopped := newScene(5,
		Fault{At: 11 * time.Second, Kind: FaultLeave, Nodes: everyone},
		Fault{At: 15 * time.Second, Kind: FaultStart, Nodes: everyone})
	stopped.Seed, stopped.Snapshots = 3, time.Minute
	stopped.Limits = append(stopped.Limits, weir.Limit{Name: "quota", Algorithm: weir.FixedWindow, Rate: 300, Per: 24 * time.Hour})
	stopped.Loads = append(stopped.Loads, Load{Limit: "quota", Keys: 3, Rate: 30})
	// With this seed, a key is reset just before the stop, and no check for the key
	// follows before the stop. The restored snapshot has the count before the reset.
	reverted := newScene(5,
		Fault{At: 24 * time.Second, Kind: FaultKill, Nodes: everyone},
		Fault{At: 25 * time.Second, Kind: FaultRevert, Nodes: everyone[:1]},
		Fault{At: 26 * time.Second, Kind: FaultStart, Nodes: everyone})
	reverted.Seed, reverted.Snapshots = 3, time.Second
	kept := newScene(3)
	kept.Limits[0] = weir.Limit{Name: "calls", Rate: 2000, Per: 10 * time.Second, Keep: 1000}
	kept.Loads = append(kept.Loads, Load{Limit: "calls", Critical: true, Rate: 20})
	// A region releases units although it has spent all usable units.
	moving := newScene(2)
	moving.Nodes[0].Region, moving.Nodes[1].Region = "east", "west"
	moving.WAN.Latency = 20 * time.Millisecond
	moving.Limits[0] = weir.Limit{Name: "calls", Algorithm: weir.SlidingLog, Rate: 80, Per: 2 * time.Second, Scope: weir.Global, Keep: 60}
	moving.Loads = nil
	for at := time.Duration(0); at < moving.Lasts-3*time.Second; at += 5 * time.Second {
		moving.Loads = append(moving.Loads,
			Load{Limit: "calls", From: []string{"a"}, Rate: 200, Begins: at, Ends: at + 3*time.Second},
			Load{Limit: "calls", From: []string{"b"}, Rate: 400, Begins: at + 2*time.Second, Ends: at + 5*time.Second})
	}
	banned := newScene(5, Fault{At: 12 * time.Second, Kind: FaultKill, Nodes: []string{"b"}}, Fault{At: 16 * time.Second, Kind: FaultLeave, Nodes: []string{"c"}})
	banned.Limits[0].Ban = weir.Ban{Denials: 40, Within: 5 * time.Second, For: weir.BanLengths{5 * time.Second}}
	banned.Loads = []Load{{Limit: "calls", Keys: 6, Rate: 1500}}
	banSplit := newScene(5, Fault{At: 12 * time.Second, Kind: FaultSplit, Sides: [][]string{{"a", "b"}, {"c", "d", "e"}}}, Fault{At: 17 * time.Second, Kind: FaultHeal})
	banSplit.Limits[0].Rate = 2
	banSplit.Limits[0].Ban = weir.Ban{Denials: 20, Within: time.Second, For: weir.BanLengths{10 * time.Second}}
	banSplit.Loads = []Load{{Limit: "calls", Keys: 20, Rate: 3000, Begins: 11900 * time.Millisecond}}
	all := map[string]*Scenario{"banned": banned, "banned-split": banSplit, "kept": kept, "keeps-moving": moving, "stopped": stopped, "reverted": reverted, "flight": flight, "flight-split": cut, "budget": budget, "slow": slow, "slow-gossip": gossip, "quota": quota, "split": split, "thaw": thaw, "scaled": scaled, "apart": apart, "few": few, "left": left, "lent": lent}
	for name, s := range all {
		s.Name = name
	}
	return all
}

// mutated returns the files that some of the mutants change, by path, with the changed
// text, and the file switchFile.
func mutated(t *testing.T, some ...int) map[string][]byte {
	t.Helper()
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	files := map[string][]byte{filepath.Join(root, switchFile): []byte(switchesFor)}
	for _, i := range some {
		for _, e := range mutants[i].edits {
			file := filepath.Join(root, e.file)
			if files[file] == nil {
				text, err := os.ReadFile(file)
				require.NoError(t, err)
				clause := regexp.MustCompile(`(?m)^package \w+$`).FindIndex(text)
				require.NotNil(t, clause, e.file)
				files[file] = slices.Insert(text, clause[1], []byte("\n\nimport \"github.com/weir-go/weir/internal/mutant\"")...)
			}
			require.Equal(t, 1, bytes.Count(files[file], []byte(e.old)),
				"%s has changed: this mutant replaces the following, which must be there once; make the same fault where it belongs now\n%s", e.file, e.old)
			played := fmt.Sprintf("mutant.Played(%q)", number(i))
			files[file] = bytes.Replace(files[file], []byte(e.old), []byte(strings.ReplaceAll(e.new, "MUTANT", played)), 1)
		}
	}
	return files
}

// number returns the value of mutantEnv with which a process plays a mutant. Without a
// mutant, mutantEnv is empty.
func number(mutant int) string { return strconv.Itoa(mutant + 1) }

// The default run must find that an edit no longer applies, because only the full run
// builds the mutants.
func TestEachMutantStillFitsTheProduct(t *testing.T) {
	scenarios := mutantScenarios()
	for i, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			for file, text := range mutated(t, i) {
				_, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
				require.NoError(t, err)
			}
			require.True(t, slices.ContainsFunc(m.edits, func(e edit) bool { return strings.Contains(e.new, "MUTANT") }), "no edit contains MUTANT")
			require.Contains(t, scenarios, m.scenario)
			require.True(t, slices.ContainsFunc(invariants, func(i invariant) bool { return i.name == m.breaks }), m.breaks)
		})
	}
}

// TestJudgeFindsEachMutant builds the simulations with all mutants. It
// plays each scenario without a mutant, and each mutant in its scenario.
func TestJudgeFindsEachMutant(t *testing.T) {
	testenv.SkipUnlessFull(t, "WEIR_FULL=1 go test ./simulations in .ci/run; TestEachMutantStillFitsTheProduct checks the mutants' edits")
	t.Parallel()
	dir := t.TempDir()
	for name, s := range mutantScenarios() {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".yaml"), s.yaml(), 0o644))
	}
	program := buildMutants(t, dir)
	for name := range mutantScenarios() {
		t.Run("no mutant in "+name, func(t *testing.T) {
			t.Parallel()
			status, out := playWith(t, program, "", filepath.Join(dir, name+".yaml"))
			require.Zero(t, status, "%s without a mutant:\n%s", name, out)
		})
	}
	for i, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			status, out := playWith(t, program, number(i), filepath.Join(dir, m.scenario+".yaml"))
			require.Equal(t, exitBroken, status, "the mutant was not found:\n%s", out)
			require.Contains(t, out, "✗ "+m.breaks, "another invariant is broken:\n%s", out)
		})
	}
}

// buildMutants builds the simulations with all mutants.
func buildMutants(t *testing.T, dir string) (program string) {
	t.Helper()
	var all []int
	for i := range mutants {
		all = append(all, i)
	}
	replace := make(map[string]string)
	for file, text := range mutated(t, all...) {
		replace[file] = filepath.Join(dir, fmt.Sprintf("%d-%s", len(replace), filepath.Base(file)))
		require.NoError(t, os.WriteFile(replace[file], text, 0o644))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	file := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(file, overlay, 0o644))
	program = filepath.Join(dir, "mutants")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", file, "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

// playWith plays a scenario with a program of buildMutants. It switches on the given
// mutant, or none if mutant is empty.
func playWith(t *testing.T, program, mutant, scenario string) (status int, out string) {
	cmd := exec.CommandContext(t.Context(), program, scenario)
	cmd.Env = append(os.Environ(), mutantEnv+"="+mutant)
	b, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), string(b)
	}
	require.NoError(t, err)
	return 0, string(b)
}
