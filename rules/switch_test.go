package rules

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/weirtest"
)

const switchable = `
rules:
- {name: plain, key: user, limit: {rate: 10, per: 1h}}
- {name: trial, key: user, shadow: true, limit: {rate: 10, per: 1h}}
- {name: tenth, key: user, enforce: 10%, limits: [{rate: 10, per: 1h}, {name: day, rate: 10, per: 24h}]}
- {name: gone, key: user, enabled: false, limit: {rate: 10, per: 1h}}
`

// modesOf returns the modes in force, in the order of the file.
func modesOf(b *Book) string {
	var all []string
	s := b.Current()
	for _, r := range s.Rules() {
		all = append(all, s.Mode(r).String())
	}
	return strings.Join(all, " ")
}

func TestSwitchesReplaceModesOfTheFile(t *testing.T) {
	var shared sharedValues
	now := time.Unix(1_800_000_000, 0).UTC()
	here, there := newSharedBook(t, &shared, &now, switchable), newSharedBook(t, &shared, &now, switchable)
	set := func(rule string, m Mode) func() error {
		return func() error {
			return here.Switch(rule, Switch{Mode: m, Control: Control{By: "jo", Reason: "an incident"}})
		}
	}
	for _, c := range []struct {
		about string
		do    func() error
		want  string
	}{
		{"the file alone", func() error { return nil }, "enforce shadow 10% off"},
		{"a switch of a rule", set("plain", Shadow), "shadow shadow 10% off"},
		{"a shadow is enforced", set("trial", Enforce), "shadow enforce 10% off"},
		{"of all rules: the switch of a rule is more specific", set(AllRules, Off), "shadow enforce off off"},
		{"the last writer wins", set(AllRules, EnforcePart(0.25)), "shadow enforce 25% 25%"},
		{"another node's operator wins as well", func() error { return there.Switch(AllRules, Switch{Mode: Shadow}) }, "shadow enforce shadow shadow"},
		{"restored", func() error { return here.RestoreRule("trial") }, "shadow shadow shadow shadow"},
		{"restored again", func() error { return here.RestoreRule("trial") }, "shadow shadow shadow shadow"},
		{"all restored", func() error { return there.RestoreRule(AllRules) }, "shadow shadow 10% off"},
		{"a new file", func() error { return here.enforce(mustParse(t, strings.ReplaceAll(switchable, "10%", "20%"))) }, "shadow shadow 20% off"},
		{"its rule is gone", func() error { return here.enforce(mustParse(t, strings.ReplaceAll(switchable, "plain", "other"))) }, "enforce shadow 10% off"},
		{"and back", func() error { return here.enforce(mustParse(t, switchable)) }, "shadow shadow 10% off"},
	} {
		require.NoError(t, c.do(), c.about)
		here.refresh()
		there.refresh()
		require.Equal(t, c.want, modesOf(here), c.about)
		if string(here.Current().Text()) == switchable {
			require.Equal(t, c.want, modesOf(there), c.about)
		}
	}
	require.Equal(t, []Switch{{Control{By: "jo", Reason: "an incident", At: now}, "plain", Shadow}}, here.Switches())
	require.Equal(t, 1, here.Stats().Switches)
	s := here.Current()
	w, ok := s.SwitchOf(s.Rules()[0])
	require.True(t, ok)
	require.Equal(t, "jo", w.By)
	_, ok = s.SwitchOf(s.Rules()[1])
	require.False(t, ok)
}

func TestNoRequestMeetsRulesThatAreOff(t *testing.T) {
	var shared sharedValues
	now := time.Unix(1_800_000_000, 0).UTC()
	b := newSharedBook(t, &shared, &now, switchable)
	names := func(all []*Rule) (names []string) {
		for _, r := range all {
			names = append(names, r.Name)
		}
		return names
	}
	request := &Request{Path: "/", User: "u"}
	require.Equal(t, []string{"plain", "trial", "tenth"}, names(b.Current().Match(request, nil)))
	require.Equal(t, []string{"gone"}, names(b.Current().MatchOff(request)))
	require.NoError(t, b.Switch("trial", Switch{Mode: Off}))
	require.NoError(t, b.Switch("gone", Switch{Mode: Enforce}))
	require.Equal(t, []string{"plain", "tenth", "gone"}, names(b.Current().Match(request, nil)))
	require.Equal(t, []string{"trial"}, names(b.Current().MatchOff(request)))
	require.True(t, b.Current().Enabled())
	room := make([]*Rule, 0, 8)
	s := b.Current()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		for _, r := range s.Match(request, room) {
			s.ModeFor(r, "u")
		}
	}))
	for _, rule := range []string{"trial", "gone"} {
		require.NoError(t, b.RestoreRule(rule))
	}
	require.NoError(t, b.Switch(AllRules, Switch{Mode: Off}))
	require.Empty(t, b.Current().Match(request, nil))
	require.False(t, b.Current().Enabled())
	require.NoError(t, b.enforce(mustParse(t, "enabled: false"+switchable)))
	require.NoError(t, b.Switch("plain", Switch{Mode: Enforce}))
	require.Equal(t, []string{"plain"}, names(b.Current().Match(request, nil)), "a switch takes precedence over enabled: false of the file")
}

func TestSwitchEndsOnTimeAndIsLogged(t *testing.T) {
	var shared sharedValues
	now := time.Unix(1_800_000_000, 0).UTC()
	here, there := newSharedBook(t, &shared, &now, switchable), newSharedBook(t, &shared, &now, switchable)
	log := new(journal)
	there.log = slog.New(slog.NewTextHandler(log, nil))
	require.NoError(t, here.Switch("plain", Switch{Mode: Off, Control: Control{Until: now.Add(time.Minute), By: "jo", Reason: "an incident"}}))
	for range 3 {
		there.refresh()
		there.mu.Lock()
		there.swap(*there.Current(), now)
		there.mu.Unlock()
	}
	require.Equal(t, 1, log.count(`msg="the switch of a rule is in force" rule=plain mode=off until=2027-01-15T08:01:00Z by=jo reason="an incident"`), log)
	now = now.Add(time.Minute - 1)
	there.refresh()
	require.Equal(t, "off shadow 10% off", modesOf(there))
	now = now.Add(1)
	there.refresh()
	require.Equal(t, "enforce shadow 10% off", modesOf(there))
	require.Equal(t, 1, log.count(`msg="the switch of a rule has ended" rule=plain mode=off`), log)
	here.refresh()
	require.Empty(t, here.Switches())
	require.Empty(t, shared.values[switchPrefix+"plain"].Value)
}

func TestInvalidSwitchesAreRefused(t *testing.T) {
	var shared sharedValues
	now := time.Unix(1_800_000_000, 0).UTC()
	b := newSharedBook(t, &shared, &now, switchable)
	for _, c := range []struct {
		rule string
		w    Switch
		want string
	}{
		{"plian", Switch{}, `weir: invalid Switch: there is no rule "plian": did you mean "plain"?`},
		{"plain", Switch{Mode: -2}, "weir: invalid Switch: Mode is -2: use Enforce, Shadow, Off or EnforcePart"},
		{"plain", Switch{Mode: Shadow + 1}, "Mode is 1000001"},
		{"plain", Switch{Control: Control{Until: now}}, "weir: invalid Switch: Until is "},
		{"plain", Switch{Control: Control{Reason: strings.Repeat("r", 257)}}, "weir: invalid Switch: Reason has 257 bytes: use at most 256"},
	} {
		err := b.Switch(c.rule, c.w)
		require.ErrorIs(t, err, weir.ErrInvalid)
		require.ErrorContains(t, err, c.want)
	}
	require.Empty(t, shared.values)
	for name, value := range map[string]string{"plain": `{}`, "": `{"mode":"off"}`, "trial": `{"mode":"later"}`, "gone": `[`} {
		require.NoError(t, shared.Publish(switchPrefix+name, 0, []byte(value)))
	}
	b.refresh()
	require.Equal(t, "enforce shadow 10% off", modesOf(b), "values that this release cannot read are ignored")
	shared.fails = errors.New("no room")
	require.ErrorIs(t, b.Switch("plain", Switch{}), shared.fails)
}

// Of 100,000 keys, each node enforces a rule with enforce: 10% for 10,000 ± 300 keys. The keys are the same on
// five nodes, and after the restart of all nodes.
func TestNodesEnforceRuleForSameKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := make([]string, 100_000)
		for i := range keys {
			keys[i] = strconv.Itoa(i)
		}
		options := weirtest.Options{Nodes: []string{"a", "b", "c", "d", "e"}, Config: weir.Config{Logger: slog.New(slog.DiscardHandler), Seed: []byte("the seed of all nodes, 32 bytes.")}}
		enforced := func(c *weirtest.Cluster, name string) (is []bool, n int) {
			s := staticBook(t, c.Node(name), switchable).Current()
			tenth := s.Rules()[slices.IndexFunc(s.Rules(), func(r *Rule) bool { return r.Name == "tenth" })]
			for _, key := range keys {
				is = append(is, s.ModeFor(tenth, key) == Enforce)
				if is[len(is)-1] {
					n++
				}
			}
			return is, n
		}
		c, err := weirtest.NewCluster(t.Context(), options)
		require.NoError(t, err)
		first, n := enforced(c, "a")
		require.InDelta(t, 10_000, n, 300)
		t.Logf("a tenth of 100,000 keys: %d", n)
		for _, name := range options.Nodes[1:] {
			is, _ := enforced(c, name)
			require.True(t, slices.Equal(first, is), name)
		}
		require.NoError(t, c.Close())
		c, err = weirtest.NewCluster(t.Context(), options)
		require.NoError(t, err)
		defer c.Close()
		after, _ := enforced(c, "e")
		require.True(t, slices.Equal(first, after), "after the restart of all nodes")
	})
}

// Each side of a split obeys its own switch. After the split, all nodes obey the last switch.
func TestLastSwitchWinsAfterSplit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, books := startBooks(t, switchable)
		expect := func(modes string) {
			t.Helper()
			for i, mode := range strings.Fields(modes) {
				name := c.Names()[i]
				require.Equal(t, mode, strings.Fields(modesOf(books[name]))[0], name)
			}
		}
		time.Sleep(time.Minute)
		require.NoError(t, books["a"].Switch("plain", Switch{Mode: Shadow}))
		expect("shadow enforce enforce")
		time.Sleep(time.Second)
		expect("shadow shadow shadow")
		c.Cut([]string{"a", "b"}, []string{"c"})
		time.Sleep(time.Minute)
		require.NoError(t, books["c"].Switch("plain", Switch{Mode: Off}))
		time.Sleep(time.Second)
		require.NoError(t, books["b"].Switch("plain", Switch{Mode: EnforcePart(0.5)}))
		time.Sleep(time.Second)
		expect("50% 50% off")
		c.Heal()
		time.Sleep(15 * time.Second)
		expect("50% 50% 50%")
		require.NoError(t, books["c"].RestoreRule("plain"))
		time.Sleep(time.Second)
		expect("enforce enforce enforce")
	})
}

func TestModeIsReadAsItIsWritten(t *testing.T) {
	for _, m := range []Mode{Enforce, Shadow, Off, EnforcePart(0.1), EnforcePart(0.000001), EnforcePart(0.999999), EnforcePart(0.333333)} {
		var read Mode
		require.NoError(t, read.UnmarshalText([]byte(m.String())), m.String())
		require.Equal(t, m, read, m.String())
	}
	require.Equal(t, []string{"10%", "33.3333%", "enforce"}, []string{EnforcePart(0.1).String(), EnforcePart(0.333333).String(), EnforcePart(1).String()})
	for text, want := range map[string]string{
		"": "", "shadows": `mode is "shadows": use enforce, shadow, off, or a percentage of the keys, like 10%`,
		"0%": `mode is "0%": use 0.0001% to 100% of the keys, or shadow for none`, "101%": "", "NaN%": "", "-Inf%": "", "-5%": "", "0.00001%": "", "10": "", "10 %": "",
	} {
		var m Mode
		err := m.UnmarshalText([]byte(text))
		require.Error(t, err, text)
		require.ErrorContains(t, err, want)
		require.Zero(t, m)
	}
}

// The enforced part of the keys has the size in the rule. It is the same on other nodes with the same
// seed and after a restart, and each larger part contains it.
func TestEnforcePartSelectsKeysByID(t *testing.T) {
	const keys = 100_000
	start := func(seed string, file string) *Snapshot {
		n, err := weir.Start(t.Context(), weir.Config{Seed: []byte(seed), Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		t.Cleanup(func() { n.Close() })
		return staticBook(t, n, file).Current()
	}
	tenth := start("a seed of 16 bytes or more", switchable)
	again := start("a seed of 16 bytes or more", switchable)
	third := start("a seed of 16 bytes or more", strings.ReplaceAll(switchable, "10%", "33.3%"))
	other := start("another seed of 16 bytes or more", switchable)
	var met, more, both int
	for i := range keys {
		key := fmt.Sprint("user-", i)
		mode := tenth.ModeFor(tenth.Rules()[2], key)
		require.Equal(t, mode, again.ModeFor(again.Rules()[2], key))
		wider := third.ModeFor(third.Rules()[2], key)
		if wider == Enforce {
			more++
		}
		if mode == Enforce {
			met++
			require.Equal(t, Enforce, wider)
			if other.ModeFor(other.Rules()[2], key) == Enforce {
				both++
			}
		}
	}
	require.InDelta(t, 0.1*keys, met, 0.01*keys)
	require.InDelta(t, 0.333*keys, more, 0.01*keys)
	require.InDelta(t, 0.01*keys, both, 0.005*keys, "a cluster with another seed has another tenth")
}

// Any published value is read as the switch that it contains, or is refused.
func FuzzSwitch(f *testing.F) {
	f.Add("plain", []byte(`{"mode":"10%","until":"2026-11-30T08:00:00Z","by":"jo","reason":"r","at":"2026-11-30T07:00:00Z"}`))
	f.Add(AllRules, []byte(`{"mode":"off","at":"0000-01-01T00:00:00Z"}`))
	f.Fuzz(func(t *testing.T, name string, value []byte) {
		read := func(value []byte) (controlled, error) {
			return controlKinds[2].read(weir.Published{Name: switchPrefix + name, Value: value})
		}
		first, err := read(value)
		if err != nil {
			return
		}
		w := first.(*Switch)
		text, err := json.Marshal(w)
		require.NoError(t, err)
		again, err := read(text)
		require.NoError(t, err)
		require.Equal(t, w.Mode, again.(*Switch).Mode)
		require.True(t, w.Until.Equal(again.control().Until))
	})
}
