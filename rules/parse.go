package rules

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/enum"
	"github.com/weir-go/weir/internal/strictyaml"
)

// Parse reads a file, YAML or JSON, of at most 1 MiB (which is the maximum of a Kubernetes
// ConfigMap), or a text of fragments that a Source of a directory returned. The name is used only in
// errors. The error joins at most 20 errors of the file, each with file, line and column, and an error that
// states how many more were found. A text that is not valid YAML has a single error. MaxMet is checked only if
// there is no other error.
func Parse(name string, text []byte) (*Set, error) {
	p, file, err := read(name, text)
	if err != nil {
		return nil, err
	}
	if file.Err() == nil {
		p.checkCrowds()
	}
	if err := file.Err(); err != nil {
		return nil, err
	}
	return p.set, nil
}

// read makes the Set. File.Err returns the errors of the file.
func read(name string, text []byte) (*parser, *strictyaml.File, error) {
	file, err := readFields(name, text)
	if err != nil {
		return nil, nil, err
	}
	p := parser{
		set:   &Set{text: slices.Clone(text), defaultTier: -1, names: make(map[string]*Limit), hosts: make(map[string]*tree), below: make(map[string]*tree), adaptive: make(map[string]*Rule)},
		lines: make(map[string]int),
		zones: make(map[string]bool),
		paths: make(map[*tree][]string),
	}
	file.Read(func(root strictyaml.Value) {
		if isForeign(root, true) {
			return // isForeign has added an error
		}
		p.file(root)
		for _, r := range p.set.rules {
			p.set.modes = append(p.set.modes, p.set.modeInFile(r))
		}
		p.insertRules()
	})
	return &p, file, nil
}

// parser makes a Set from a file.
type parser struct {
	set        *Set
	ipv6       int
	multiply   []float64       // factor of each tier
	byDefault  []*Denied       // texts of denials of the file; nil if it has none
	lines      map[string]int  // line of each rule, limit and time window, by its kind and name
	zones      map[string]bool // whether the key of the map is the name of a time zone
	insertions []insertion
	valueCount int                // number of values in all limits so far
	paths      map[*tree][]string // examples of paths that the patterns match
}

func (p *parser) file(v strictyaml.Value) {
	m := v.Map(fileFields...)
	s := p.set
	m.Get("$schema").Text()
	s.version, s.versionAt = m.Get("version").Uint(), m.Get("version").ErrorAt("")
	s.enabled = !m.Get("enabled").Present() || m.Get("enabled").Bool()
	s.ignoreCase = m.Get("ignore_case").Bool()
	p.ipv6 = cmp.Or(int(m.Get("ipv6_prefix").Int(32, 128)), defaultIPv6)
	p.tiers(m.Get("tiers"), m.Get("default_tier"))
	p.windows(m.Get("times"))
	p.clients(&s.exempt, m.Get("exempt").Map(exemptFields...), new(Block))
	s.exempt.networks = sortBlocked(s.exempt.networks)
	p.byDefault = p.denied(m.Get("denied"), nil)
	for _, rule := range m.Get("rules").Required().List() {
		p.rule(rule)
	}
	p.deny(m.Get("deny"))
}

func (p *parser) tiers(tiers, byDefault strictyaml.Value) {
	p.set.tierAt = make(map[string]int)
	entries := tiers.Entries()
	if len(entries) > maxTiers {
		tiers.Errorf("tiers has %d entries: use at most %d", len(entries), maxTiers)
		return
	}
	for i, e := range entries {
		checkName(e.Key, e.Field)
		p.set.tierAt[e.Field] = i
		p.set.tiers = append(p.set.tiers, e.Field)
		p.multiply = append(p.multiply, cmp.Or(e.Value.Map(tierFields...).Get("multiply").Float(0.001, 1_000_000), 1))
	}
	if tier := byDefault.OneOf("tier", p.set.tiers); tier != "" {
		p.set.defaultTier = p.set.tierAt[tier]
	}
}

// clients adds the clients in the fields of a map to a set, with Blocks like the given one.
func (p *parser) clients(to *clients[string], m strictyaml.Map, like *Block) {
	block := func(kind BlockKind) *Block {
		b := *like
		b.Kind = kind
		return &b
	}
	for _, item := range m.Get("ip").OneOrMore() {
		if prefix, ok := networkIn(item); ok {
			b := block(BlockIP)
			b.Network = prefix
			to.networks = append(to.networks, network[*Block]{prefix: prefix, value: b})
		}
	}
	for _, text := range texts(m.Get("user"), "user", false) {
		to.users = put(to.users, text, block(BlockUser))
	}
	for _, text := range texts(m.Get("api_key"), "api_key", true) {
		to.apiKeys = put(to.apiKeys, text, block(BlockAPIKey))
	}
}

// deny reads the clients and keys that are blocked. It must be called after the rules were read, because a key
// names its rule.
func (p *parser) deny(v strictyaml.Value) {
	s := p.set
	for _, item := range readItems(v) {
		m := item.Map(denyFields...)
		b := Block{Control: Control{Until: timeOf(m.Get("until")), Reason: m.Get("reason").Text()}}
		if len(b.Reason) > maxReasonBytes {
			m.Get("reason").Errorf("reason has %d bytes: use at most %d", len(b.Reason), maxReasonBytes)
		}
		p.clients(&s.deny, m, &b)
		for _, e := range m.Get("key").Entries() {
			r := s.rule(e.Field)
			if r == nil {
				e.Key.Errorf("there is no rule %q: %s", e.Field, enum.Suggest(e.Field, listNames(s.rules, nameOfRule)))
				continue
			}
			of := b
			of.Kind, of.Rule = BlockKey, e.Field
			for _, text := range textList(e.Value, func(strictyaml.Value, string) {}) {
				s.denyKeys = put(s.denyKeys, ruleKey{r.Index, text}, &of)
			}
		}
		refuse(item, conflict{item.IsMap() && !m.HasAny("ip", "user", "api_key", "key"), "deny has no client: add ip, user, api_key or key"})
	}
	s.deny.networks = sortBlocked(s.deny.networks)
}

func listNames[T any](all []T, name func(T) string) (names []string) {
	for _, of := range all {
		names = append(names, name(of))
	}
	return names
}

func nameOfRule(r *Rule) string { return r.Name }

// timeOf reads a time, with or without quotes.
func timeOf(v strictyaml.Value) (at time.Time) {
	text := v.Literal()
	if text == "" {
		return at
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		v.Errorf("until is %q: use a time like 2006-01-02T15:04:05Z", text)
	}
	return at
}

func networkOf(text string) (netip.Prefix, bool) {
	if a, err := netip.ParseAddr(text); err == nil {
		a = a.Unmap().WithZone("")
		return netip.PrefixFrom(a, a.BitLen()), true
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil || prefix.Addr().Is4In6() {
		return netip.Prefix{}, false
	}
	return prefix.Masked(), true
}

// texts reads texts that must not be patterns. If secret is true, errors do not contain a text.
func texts(v strictyaml.Value, name string, secret bool) []string {
	return textList(v, func(item strictyaml.Value, text string) { refusePattern(item, name, text, secret) })
}

// readItems reads a list, or a single value as a list with a single element, and reports an error for an
// empty list.
func readItems(v strictyaml.Value) []strictyaml.Value {
	items := v.OneOrMore()
	if v.IsList() && len(items) == 0 {
		v.Errorf("the list is empty: remove it, or add to it")
	}
	return items
}

// textList reads a text or a list of texts that are not empty, and calls check for each text that is not
// marked as exact.
func textList(v strictyaml.Value, check func(item strictyaml.Value, text string)) (all []string) {
	for _, item := range readItems(v) {
		one, exact := textOf(item)
		switch {
		case !exact && !item.IsText():
			continue
		case one == "":
			item.Errorf("the text is empty: write a text, or remove this entry")
			continue
		case !exact:
			check(item, one)
		}
		all = append(all, one)
	}
	return all
}

func (p *parser) rule(v strictyaml.Value) {
	m := v.Map(ruleFields...)
	r := &Rule{Index: len(p.set.rules), key: key{ipv6: p.ipv6, ignoreCase: p.set.ignoreCase}}
	name := m.Get("name").Required()
	r.Name = name.Text()
	if r.Name != "" || name.IsText() {
		checkName(name, r.Name)
		p.checkUnique(name, "rule", r.Name)
	}
	p.match(r, m.Get("match"), v)
	p.key(r, m.Get("key").Required())
	r.key.lacking = lacking(slices.Index(lackingNames, oneOf(m.Get("missing_key"), "way to do without a key", lackingNames)))
	r.cost = p.costOf(r, m.Get("cost"), "cost", false)
	isShadow := m.Get("shadow").Bool()
	r.Mode = modeOf(m.Get("enabled"), m.Get("enforce"), isShadow)

	base := weir.Limit{
		SecretKeys: r.key.secret(),
		Scope:      strictyaml.Named[weir.Scope](m.Get("scope")),
		Partition:  strictyaml.Named[weir.PartitionPolicy](m.Get("partition")),
		NoLeases:   m.Get("no_leases").Bool(),
		Durable:    durability(m.Get("durable")),
		Version:    p.set.version,
		Ban:        p.ban(m.Get("ban")),
	}
	p.multiplied(r, m.Get("multiply"))
	p.soft(r, m.Get("soft"))
	r.warn = warn(m.Get("warn"), 0)
	refuse(m.Get("warn"), conflict{isShadow, "warn in a rule with shadow: remove warn or shadow, because a shadow warns no client"})
	p.limits(r, v, m.Get("limit"), m.Get("limits"), base)
	p.criticals(r, m.Get("critical"))
	p.queue(r, m.Get("queue"), isShadow)
	p.checkBan(r, m.Get("ban"), isShadow)
	p.outcome(r, m.Get("count"), m.Get("refund_on"))
	p.settle(r, m.Get("reserve"), m.Get("settle"), m.Get("cost"))
	r.denied = p.denied(m.Get("denied"), p.byDefault)
	p.adapt(r, m.Get("adapt"))
	p.raise(r, m.Get("raise"), isShadow)
	refuse(m.Get("soft"), conflict{r.Soft.Over > 0 && r.holds(), "soft in a rule with an in_flight limit: put soft and the in_flight limit into two rules, because an in_flight limit never holds more than its rate"})
	refuse(m.Get("durable"), conflict{r.holds(), "durable in a rule with an in_flight limit: remove durable, because holds end with the processes that have them"})
	refuse(m.Get("soft"), conflict{isShadow && r.Soft.Over > 0, "soft in a rule with shadow: remove soft or shadow, because a shadow denies nothing"})
	r.By, r.Cost = r.key.String(), r.cost.String()
	p.set.rules = append(p.set.rules, r)
}

// conflict is a condition under which a rule must not have a field, and the error.
type conflict struct {
	is   bool
	text string
}

// refuse reports the first of the conflicts of a field that is present.
func refuse(v strictyaml.Value, all ...conflict) (refused bool) {
	for _, c := range all {
		if c.is && v.Present() {
			v.Errorf("%s", c.text)
			return true
		}
	}
	return false
}

// holds reports whether a limit of the rule is InFlight.
func (r *Rule) holds() bool {
	return slices.ContainsFunc(r.Limits, func(l Limit) bool { return l.InFlight() })
}

// isHeld reports whether all limits of the rule are InFlight.
func (r *Rule) isHeld() bool {
	return len(r.Limits) > 0 && !slices.ContainsFunc(r.Limits, func(l Limit) bool { return !l.InFlight() })
}

// modeOf reads the mode of a rule.
func modeOf(enabled, enforce strictyaml.Value, isShadow bool) (m Mode) {
	if isShadow {
		m = Shadow
	}
	if enforce.Present() {
		part := enforce.Unquoted().Percent()
		m = EnforcePart(part)
		switch {
		case isShadow:
			enforce.Errorf("enforce in a rule with shadow: remove enforce or shadow, because a shadow denies nothing")
		case enforce.IsText() && isZero(enforce.Text()):
			enforce.Errorf("enforce is %s: use more than 0%%, or shadow: true", enforce.Text())
		case part > 0 && m == Shadow:
			enforce.Errorf("enforce is %s: use at least 0.0001%%", enforce.Text())
		}
	}
	if enabled.Present() && !enabled.Bool() {
		m = Off
	}
	return m
}

// multiplied sets whether tiers multiply the limits of a rule. By default, tiers multiply only limits
// whose key has a part besides global, the address of the client, the host and the path. A tier belongs to a
// user, and everyone who shares the address of the user would have the multiplied limit, for example to
// guess passwords.
func (p *parser) multiplied(r *Rule, v strictyaml.Value) {
	byAddress := !slices.ContainsFunc(r.key.parts, func(p part) bool {
		return p.from != fromNothing && p.from != fromClient && p.from != fromHost && p.from != fromPath
	})
	if r.multiplied = !byAddress; !v.Present() {
		return
	}
	r.multiplied = v.Bool()
	switch {
	case r.multiplied && r.key.isGlobal():
		v.Errorf("multiply in a rule with key global: one count of all requests has no tier; give the limit its own numbers for tiers")
	case r.multiplied && byAddress && len(p.multiply) > 0 && slices.Max(p.multiply) > 1:
		p.set.warnings = append(p.set.warnings, v.ErrorAt(fmt.Sprintf(
			"tiers multiply the limits of rule %q, whose key is %s: a client of a tier has up to %v times the attempts of its address", r.Name, &r.key, slices.Max(p.multiply))))
	}
}

// durability reads whether snapshots contain the counts of a rule.
func durability(v strictyaml.Value) weir.Durability {
	switch {
	case !v.Present():
		return weir.DurableIfLong
	case v.Bool():
		return weir.Durable
	}
	return weir.NotDurable
}

// checkUnique reports an error for a name that an earlier rule, limit or time window already has.
func (p *parser) checkUnique(v strictyaml.Value, what, name string) {
	line, _ := v.Position()
	if first, twice := p.lines[what+" "+name]; twice {
		v.Errorf("%s %q is used twice: give each %s its own name (the first is on %s)", what, name, what, v.Line(first))
		return
	}
	p.lines[what+" "+name] = line
}

func (p *parser) key(r *Rule, v strictyaml.Value) {
	parts := v.OneOrMore()
	switch {
	case v.Present() && len(parts) == 0:
		v.Errorf("key is empty: use global for a single count of all requests")
	case len(parts) > maxParts:
		v.Errorf("key has %d parts: use at most %d", len(parts), maxParts)
	}
	for _, item := range parts {
		text := item.Text()
		if !item.IsText() {
			continue
		}
		new, ok := partOf(text)
		if !ok {
			item.Errorf("unknown key %q: %s", text, enum.Suggest(text, knownKeys))
			continue
		}
		switch new.from {
		case fromHeader:
			new.name = p.headerName(item, new.name)
		case fromPath:
			new.segment = r.key.pattern.wildcard(new.name)
			r.key.chosen = true
			if new.name != "" && new.segment < 0 {
				item.Errorf("key %q: path %q has no segment {%s}: use path:NAME for a segment {NAME} of match.path, or path for the whole path", text, r.When.Path, new.name)
			}
		case fromQuery, fromCookie, fromClaim:
			r.key.chosen = r.key.chosen || new.from != fromClaim
			if !isParameter(new.name) {
				item.Errorf("key %q needs a name, which has no space and none of the characters %% & ; , = +", text)
			}
		}
		if new.from == fromNothing && len(parts) > 1 {
			item.Errorf("key global among others: use global alone, because it is a single count for all requests")
		}
		if slices.Contains(r.key.parts, new) {
			item.Errorf("key %q is named twice: remove one", text)
		}
		r.key.parts = append(r.key.parts, new)
	}
}

// isParameter reports whether a text can be the name of a parameter, cookie or claim.
func isParameter(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c == 0x7f || strings.ContainsRune("%&;,=+", c) })
}

// costOf reads the cost of a request or, if estimate is true, the estimate of its cost.
func (p *parser) costOf(r *Rule, v strictyaml.Value, field string, estimate bool) cost {
	c := cost{fixed: 1, unit: 1}
	from := v
	switch {
	case !v.Present():
		return c
	case v.IsMap():
		fields := costFields
		if estimate {
			fields = reserveFields
		}
		m := v.Map(fields...)
		from = m.Get("from")
		if by := m.Get("by"); by.Present() {
			c.routes, c.ignoreCase = p.routes(r, by), p.set.ignoreCase
			refuse(m.Get("unit"), conflict{!from.Present(), "unit without from: remove unit or add from, because unit divides the number that from reads"})
		} else {
			from = from.Required()
		}
		if n := m.Get("default"); n.Present() {
			c.fixed = n.Int(0, maxRate)
		}
		c.unit = cmp.Or(m.Get("unit").Int(1, maxRate), 1)
		if !from.Present() {
			return c
		}
	case !v.IsText() && !(estimate && v.IsList()):
		c.fixed = v.Int(0, maxRate)
		return c
	}
	if !estimate {
		c.from = p.origin(nil, from, field, false)
		return c
	}
	for _, item := range readItems(from) {
		c.from = p.origin(c.from, item, field, true)
	}
	return c
}

// origin appends the place in a request that has the number.
func (p *parser) origin(all []origin, from strictyaml.Value, field string, estimate bool) []origin {
	text := from.Text()
	if name, ok := headerName(text); ok {
		return append(all, origin{header: p.headerName(from, name)})
	}
	if path, ok := strings.CutPrefix(text, jsonPrefix); ok && estimate {
		return append(all, origin{path: jsonPath(from, path)})
	}
	switch {
	case text == contentLength:
		return append(all, origin{length: true})
	case from.IsText() && estimate:
		from.Errorf("%s is %q: use a number, %s, header:X or %sFIELD", field, text, contentLength, jsonPrefix)
	case from.IsText():
		from.Errorf("%s is %q: use a number, %s or header:X", field, text, contentLength)
	}
	return all
}

func (p *parser) soft(r *Rule, v strictyaml.Value) {
	if !v.Present() {
		return
	}
	m := v.Map(softFields...)
	over, during := m.Get("over").Required(), m.Get("for").Required()
	r.Soft.Over = over.Unquoted().Percent()
	if over.IsText() && r.Soft.Over == 0 && isZero(over.Text()) {
		over.Errorf("over is %s: use more than 0%%, or remove soft", over.Text())
	}
	r.Soft.For = duration(during, minPer, maxPer)
}

func isZero(percent string) bool { return strings.Trim(percent, "0.%") == "" }

func (p *parser) queue(r *Rule, v strictyaml.Value, isShadow bool) {
	r.Queue = duration(v, time.Millisecond, maxQueue)
	refuse(v,
		conflict{len(r.Limits) > 1 || len(r.Limits) == 1 && r.Limits[0].base.Algorithm != weir.LeakyBucket && !r.holds(), "queue needs a single limit, which is leaky_bucket or in_flight: change the limit, or remove queue"},
		conflict{isShadow, "queue in a rule with shadow: remove queue or shadow, because a shadow delays no request"},
		conflict{r.Soft.Over > 0, "queue in a rule with soft: remove queue or soft"})
}

// checkName reports an error for a name that a header field or a metric could not contain
// unchanged.
func checkName(v strictyaml.Value, name string) {
	switch {
	case name == "" && v.IsText():
		v.Errorf("the name is empty: use letters, digits, spaces and . _ : -")
	case len(name) > maxNameBytes:
		v.Errorf("name has %d bytes: use at most %d", len(name), maxNameBytes)
	case strings.ContainsFunc(name, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune(" ._:-", c)
	}):
		v.Errorf("name is %q: use letters, digits, spaces and . _ : -", name)
	}
}

// duration reads a duration, with or without quotes. Zero is refused as too short.
func duration(v strictyaml.Value, low, high time.Duration) time.Duration {
	return v.Unquoted().Duration(low, high)
}
