package rules

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/strictyaml"
)

// The fields that a file may have, by where they are. The Schema has the same.
var (
	fileFields   = []string{"$schema", "version", "enabled", "ipv6_prefix", "tiers", "default_tier", "exempt", "rules"}
	tierFields   = []string{"multiply"}
	exemptFields = []string{"ip", "user", "api_key"}
	ruleFields   = []string{"name", "match", "key", "missing_key", "limit", "limits", "cost", "scope", "partition", "shadow", "soft", "queue"}
	matchFields  = []string{"method", "host", "path", "header", "tier"}
	limitFields  = []string{"name", "algorithm", "rate", "per", "burst", "calendar", "zone", "tiers"}
	numberFields = []string{"rate", "per", "burst"}
	costFields   = []string{"from", "default", "unit"}
	softFields   = []string{"over", "for"}
)

// The names that a file may use, in the order of what they stand for.
var (
	algorithmNames = []string{"sliding_window", "sliding_log", "fixed_window", "token_bucket", "leaky_bucket"}
	algorithms     = []weir.Algorithm{weir.SlidingWindow, weir.SlidingLog, weir.FixedWindow, weir.TokenBucket, weir.LeakyBucket}
	calendarNames  = []string{"day", "week", "month"}
	calendars      = []weir.Calendar{weir.Day, weir.Week, weir.Month}
	scopeNames     = []string{"regional", "global"}
	scopes         = []weir.Scope{weir.Regional, weir.Global}
	partitionNames = []string{"majority_share", "fair_share", "fail_open", "fail_closed"}
	partitions     = []weir.PartitionPolicy{weir.MajorityShare, weir.FairShare, weir.FailOpen, weir.FailClosed}
)

// The bounds of a file's numbers.
const (
	maxTiers     = 64
	maxLimits    = 16 // of a rule
	maxNameBytes = 64
	maxRate      = 1_000_000_000_000
	minPer       = time.Millisecond
	maxPer       = 366 * 24 * time.Hour
	maxQueue     = time.Minute
)

// Parse reads a file, YAML or JSON, of at most 1 MiB (which is as much as a
// Kubernetes ConfigMap holds). The name is for the errors alone. An error is all
// that is wrong, joined, each with file, line and column.
func Parse(name string, text []byte) (*Set, error) {
	file, err := strictyaml.Parse(name, text)
	if err != nil {
		return nil, err
	}
	p := parser{
		set:   &Set{name: name, text: slices.Clone(text), defaultTier: -1, names: make(map[string]*Limit)},
		lines: make(map[string]int),
	}
	p.file(file.Root())
	p.plant()
	if err := file.Err(); err != nil {
		return nil, err
	}
	return p.set, nil
}

// parser makes a Set of a file.
type parser struct {
	set      *Set
	ipv6     int
	multiply []float64 // of each tier
	lines    map[string]int
	plants   []plant
}

func (p *parser) file(v strictyaml.Value) {
	m := v.Map(fileFields...)
	s := p.set
	m.Get("$schema").Text()
	s.version = m.Get("version").Uint()
	s.enabled = !m.Get("enabled").Present() || m.Get("enabled").Bool()
	p.ipv6 = 64
	if bits := m.Get("ipv6_prefix"); bits.Present() {
		p.ipv6 = int(bits.Int(32, 128))
	}
	p.tiers(m.Get("tiers"), m.Get("default_tier"))
	p.exempt(m.Get("exempt"))
	for _, rule := range m.Get("rules").Required().List() {
		p.rule(rule)
	}
}

func (p *parser) tiers(tiers, byDefault strictyaml.Value) {
	p.set.tierAt = make(map[string]int)
	entries := entriesOf(tiers)
	if len(entries) > maxTiers {
		tiers.Errorf("%d tiers: use at most %d", len(entries), maxTiers)
		return
	}
	for i, e := range entries {
		checkName(e.Key, e.Field)
		m := e.Value.Map(tierFields...)
		by := 1.0
		if multiply := m.Get("multiply"); multiply.Present() {
			by = multiply.Float(0.001, 1_000_000)
		}
		p.set.tierAt[e.Field] = i
		p.set.tiers = append(p.set.tiers, e.Field)
		p.multiply = append(p.multiply, by)
	}
	if byDefault.Present() {
		if tier := byDefault.OneOf("tier", p.set.tiers); tier != "" {
			p.set.defaultTier = p.set.tierAt[tier]
		}
	}
}

func (p *parser) exempt(v strictyaml.Value) {
	if !v.Present() {
		return
	}
	m := v.Map(exemptFields...)
	for _, network := range m.Get("ip").OneOrMore() {
		if text := network.Text(); text != "" {
			if prefix, ok := networkOf(text); ok {
				p.set.exempt.add(prefix)
			} else {
				network.Errorf("ip is %q: use an address or a network, like 192.0.2.1 or 10.0.0.0/8", text)
			}
		}
	}
	p.set.exempt.users = texts(m.Get("user"))
	p.set.exempt.apiKeys = texts(m.Get("api_key"))
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

func texts(v strictyaml.Value) map[string]bool {
	all := make(map[string]bool)
	for _, text := range textList(v) {
		all[text] = true
	}
	return all
}

// textList reads one or more texts, none of them empty.
func textList(v strictyaml.Value) (all []string) {
	if v.Present() && len(v.OneOrMore()) == 0 {
		v.Errorf("the list is empty: remove it, or add to it")
	}
	for _, item := range v.OneOrMore() {
		if !item.IsText() {
			item.Text()
			continue
		}
		text := item.Text()
		if text == "" {
			item.Errorf("the text is empty")
			continue
		}
		all = append(all, text)
	}
	return all
}

func (p *parser) rule(v strictyaml.Value) {
	m := v.Map(ruleFields...)
	r := &Rule{Index: len(p.set.rules), key: key{ipv6: p.ipv6}}
	name := m.Get("name").Required()
	r.Name = name.Text()
	if r.Name != "" || name.IsText() {
		checkName(name, r.Name)
		p.once(name, "rule", r.Name)
	}
	p.match(r, m.Get("match"), v)
	p.key(r, m.Get("key").Required())
	r.key.lacking = lacking(slices.Index(lackingNames, oneOf(m.Get("missing_key"), "way to do without a key", lackingNames)))
	p.cost(r, m.Get("cost"))
	r.Shadow = m.Get("shadow").Bool()

	base := weir.Limit{
		Scope:     named(m.Get("scope"), "scope", scopeNames, scopes),
		Partition: named(m.Get("partition"), "partition policy", partitionNames, partitions),
		Version:   p.set.version,
	}
	p.soft(r, m.Get("soft"))
	p.limits(r, v, m.Get("limit"), m.Get("limits"), base)
	p.queue(r, m.Get("queue"))
	if r.Shadow && r.Soft.Over > 0 {
		m.Get("soft").Errorf("soft in a rule with shadow: true: a shadow denies nothing, remove one of both")
	}
	r.By, r.Cost = r.key.String(), r.cost.String()
	p.set.rules = append(p.set.rules, r)
}

// once refuses a name that another of its kind has.
func (p *parser) once(v strictyaml.Value, what, name string) {
	line, _ := v.Position()
	if first, twice := p.lines[what+" "+name]; twice {
		v.Errorf("%s %q is there twice: the first is on line %d", what, name, first)
		return
	}
	p.lines[what+" "+name] = line
}

func (p *parser) match(r *Rule, v, rule strictyaml.Value) {
	r.methods, r.When.Path = everyMethod, "/"
	at := v
	if v.Present() {
		m := v.Map(matchFields...)
		if m.Get("method").Present() {
			r.methods = 0
			for _, method := range m.Get("method").OneOrMore() {
				p.method(r, method)
			}
		}
		for _, host := range m.Get("host").OneOrMore() {
			p.host(r, host)
		}
		if path := m.Get("path"); path.Present() {
			at, r.When.Path = path, path.Text()
			if !path.IsText() {
				r.When.Path = "/"
			}
		}
		for _, e := range entriesOf(m.Get("header")) {
			p.header(r, e)
		}
		for _, tier := range m.Get("tier").OneOrMore() {
			if name := tier.OneOf("tier", p.set.tiers); name != "" {
				r.When.Tiers = append(r.When.Tiers, name)
				r.tiers |= 1 << p.set.tierAt[name]
			}
		}
	} else {
		at = rule
	}
	pattern, err := parsePattern(r.When.Path)
	if err != nil {
		at.Errorf("%v", err)
		return
	}
	p.plants = append(p.plants, plant{at: at, rule: r, pattern: pattern})
}

func (p *parser) method(r *Rule, v strictyaml.Value) {
	name := v.OneOf("method", methodNames)
	if name == "" {
		return
	}
	r.When.Methods = append(r.When.Methods, name)
	r.methods |= methodOf(name)
	if name == http.MethodGet {
		r.methods |= methodOf(http.MethodHead)
	}
}

func (p *parser) host(r *Rule, v strictyaml.Value) {
	text := v.Text()
	if !v.IsText() {
		return
	}
	switch {
	case text == "" || strings.ContainsAny(text, "/ \t{}@"):
		v.Errorf("host is %q: use a name or an address, like api.example.com", text)
	case strings.ContainsFunc(text, func(c rune) bool { return c >= utf8.RuneSelf }):
		v.Errorf("host is %q: clients send a name in ASCII, like xn--mnchen-3ya.de for münchen.de", text)
	case strings.Contains(text, "*"):
		v.Errorf("host is %q: hosts have no wildcards, list each host, or leave it out to match all", text)
	case hostOf(text) != strings.ToLower(text):
		v.Errorf("host is %q: did you mean %q? A port and a final dot do not matter", text, hostOf(text))
	case !slices.Contains(r.When.Hosts, hostOf(text)):
		r.When.Hosts = append(r.When.Hosts, hostOf(text))
	}
}

func (p *parser) header(r *Rule, e strictyaml.Entry) {
	h := Header{Name: p.headerName(e.Key, e.Field), Values: textList(e.Value)}
	if slices.Contains(h.Values, "*") {
		if len(h.Values) > 1 {
			e.Value.Errorf("%s is * among others: * stands for any value", e.Field)
		}
		h.Values = nil
	}
	r.When.Headers = append(r.When.Headers, h)
}

// headerName checks and canonicalizes the name of a field of a request's header.
func (p *parser) headerName(v strictyaml.Value, text string) string {
	name := http.CanonicalHeaderKey(text)
	switch {
	case name == "" || strings.ContainsFunc(name, notOfToken):
		v.Errorf("header %q is no name of a field", text)
	case name == "Host":
		v.Errorf("header %q is no field here: use match.host", text)
	}
	return name
}

func notOfToken(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
}

func (p *parser) key(r *Rule, v strictyaml.Value) {
	parts := v.OneOrMore()
	switch {
	case v.Present() && len(parts) == 0:
		v.Errorf("key is empty: use global for one count")
	case len(parts) > maxParts:
		v.Errorf("key has %d parts: use at most %d", len(parts), maxParts)
	}
	for _, item := range parts {
		if !item.IsText() {
			item.Text()
			continue
		}
		var new part
		text := item.Text()
		if name, ok := headerName(text); ok {
			new = part{from: fromHeader, header: p.headerName(item, name)}
		} else if from := slices.Index(keyNames, text); from >= 0 {
			new.from = source(from)
		} else {
			item.Errorf("unknown key %q: %s", text, strictyaml.Meant(text, keyNames))
			continue
		}
		if new.from == fromNothing && len(parts) > 1 {
			item.Errorf("key global among others: it is one count for all, use it alone")
		}
		if slices.Contains(r.key.parts, new) {
			item.Errorf("key %q is there twice", text)
		}
		r.key.parts = append(r.key.parts, new)
	}
}

func (p *parser) cost(r *Rule, v strictyaml.Value) {
	r.cost = cost{fixed: 1, unit: 1}
	from := v
	switch {
	case !v.Present():
		return
	case v.IsMap():
		m := v.Map(costFields...)
		from = m.Get("from").Required()
		if n := m.Get("default"); n.Present() {
			r.cost.fixed = n.Int(0, maxRate)
		}
		if n := m.Get("unit"); n.Present() {
			r.cost.unit = max(1, n.Int(1, maxRate))
		}
		if !from.Present() {
			return
		}
	case !v.IsText():
		r.cost.fixed = v.Int(0, maxRate)
		return
	}
	text := from.Text()
	if name, ok := headerName(text); ok {
		r.cost.header = p.headerName(from, name)
		return
	}
	if r.cost.length = text == contentLength; !r.cost.length && from.IsText() {
		from.Errorf("cost is %q: use a number, %s or header:X", text, contentLength)
	}
}

func (p *parser) soft(r *Rule, v strictyaml.Value) {
	if !v.Present() {
		return
	}
	m := v.Map(softFields...)
	over, during := m.Get("over").Required(), m.Get("for").Required()
	r.Soft.Over = over.Unquoted().Percent()
	if over.IsText() && r.Soft.Over == 0 && isZero(over.Text()) {
		over.Errorf("over is %s: use more than 0%%, or no soft", over.Text())
	}
	r.Soft.For = duration(during, minPer, maxPer)
}

func isZero(percent string) bool { return strings.Trim(percent, "0.%") == "" }

func (p *parser) queue(r *Rule, v strictyaml.Value) {
	if !v.Present() {
		return
	}
	r.Queue = duration(v, time.Millisecond, maxQueue)
	switch {
	case len(r.Limits) > 1 || len(r.Limits) == 1 && r.Limits[0].base.Algorithm != weir.LeakyBucket:
		v.Errorf("queue in a rule whose limit is not one leaky_bucket: requests take turns in a leaky_bucket alone")
	case r.Shadow:
		v.Errorf("queue in a rule with shadow: true: a shadow makes nobody wait, remove one of both")
	case r.Soft.Over > 0:
		v.Errorf("queue in a rule with soft: remove one of both")
	}
}

func (p *parser) limits(r *Rule, rule, one, many strictyaml.Value, base weir.Limit) {
	var values []strictyaml.Value
	switch {
	case one.Present() && many.Present():
		many.Errorf("limits and limit: use one of both")
		return
	case one.Present():
		values = []strictyaml.Value{one}
	case many.Present():
		if values = many.List(); len(values) == 0 {
			many.Errorf("limits is empty: a rule needs a limit")
		}
		if len(values) > maxLimits {
			many.Errorf("%d limits: use at most %d in a rule", len(values), maxLimits)
		}
	default:
		rule.Errorf("limit is missing")
	}
	r.Limits = make([]Limit, len(values))
	for i, v := range values {
		m := v.Map(limitFields...)
		l := &r.Limits[i]
		l.set, l.soft, l.Index = p.set, r.Soft, len(p.set.limits)
		l.Name = r.Name
		if name := m.Get("name"); name.Present() {
			checkName(name, name.Text())
			l.Name += "/" + name.Text()
		} else if len(values) > 1 {
			l.Name += "/" + strconv.Itoa(i+1)
		}
		if r.Name != "" && i > 0 {
			p.once(v, "limit", l.Name)
		} else {
			line, _ := v.Position()
			p.lines["limit "+l.Name] = line
		}
		l.base = base
		l.base.Name = l.Name
		p.limit(r, l, v, m)
		p.set.limits = append(p.set.limits, l)
		p.set.ruleOf = append(p.set.ruleOf, r)
		p.set.names[l.Name] = l
	}
}

func (p *parser) limit(r *Rule, l *Limit, v strictyaml.Value, m strictyaml.Map) {
	at := v
	l.base.Algorithm = weir.SlidingWindow
	calendar := m.Get("calendar")
	if calendar.Present() {
		l.base.Algorithm = weir.FixedWindow
		l.base.Calendar = named(calendar, "calendar", calendarNames, calendars)
	}
	if algorithm := m.Get("algorithm"); algorithm.Present() {
		at = algorithm
		l.base.Algorithm = named(algorithm, "algorithm", algorithmNames, algorithms)
		if calendar.Present() && l.base.Algorithm != weir.FixedWindow {
			calendar.Errorf("calendar with %s: calendar windows are of fixed_window", algorithm.Text())
			l.base.Calendar = 0
		}
	}
	l.line, l.column = at.Position()
	if zone := m.Get("zone"); zone.Present() {
		l.base.Zone = p.zone(zone, calendar.Present())
	}
	l.base.Rate = m.Get("rate").Required().Int(1, maxRate)
	switch per := m.Get("per"); {
	case calendar.Present() && per.Present():
		per.Errorf("per with calendar: the calendar says how long, remove one of both")
	case !calendar.Present():
		l.base.Per = p.per(per.Required())
	}
	burst := m.Get("burst")
	if l.base.Burst = burst.Int(1, maxRate); burst.Present() && !isBucket(l.base.Algorithm) {
		burst.Errorf("burst with %s: only token_bucket and leaky_bucket have one", nameOf(l.base.Algorithm, algorithmNames, algorithms))
		l.base.Burst = 0
	}
	if l.base.Rate > 0 && (l.base.Per > 0 || l.base.Calendar != weir.NoCalendar) {
		p.valid(v, l.base, l.soft)
	}
	p.limitTiers(r, l, v, m.Get("tiers"))
}

// valid reports what a node would refuse.
func (p *parser) valid(v strictyaml.Value, l weir.Limit, soft Soft) bool {
	if l.Name == "" {
		l.Name = "the rule has none" // which is told where the rule is
	}
	err := l.Validate()
	if s, ok := soft.of(l); ok && err == nil && s.Per > 0 {
		err = s.Validate()
	}
	if err != nil {
		v.Errorf("%s", strings.ReplaceAll(err.Error(), weir.ErrInvalid.Error()+" Limit: ", ""))
	}
	return err == nil
}

func (p *parser) zone(v strictyaml.Value, calendar bool) string {
	zone := v.Text()
	switch {
	case !v.IsText():
	case !calendar:
		v.Errorf("zone without calendar: only calendar windows have one")
	case zone == "" || zone == "Local":
		v.Errorf("zone is %q: use a name like Europe/Berlin or UTC", zone)
	default:
		if _, err := time.LoadLocation(zone); err != nil {
			v.Errorf("unknown zone %q: use a name like Europe/Berlin or UTC", zone)
			return ""
		}
		return zone
	}
	return ""
}

func (p *parser) per(v strictyaml.Value) time.Duration {
	if v.IsText() {
		if text := v.Text(); slices.Contains(calendarNames, text) {
			v.Errorf("per is %q: did you mean calendar: %s? Else write the duration, like 24h", text, text)
			return 0
		}
	}
	return duration(v, minPer, maxPer)
}

// limitTiers makes what each tier has of a limit.
func (p *parser) limitTiers(r *Rule, l *Limit, v, tiers strictyaml.Value) {
	own := make(map[string]strictyaml.Value)
	for _, e := range entriesOf(tiers) {
		if !slices.Contains(p.set.tiers, e.Field) {
			e.Key.Errorf("unknown tier %q: %s", e.Field, strictyaml.Meant(e.Field, p.set.tiers))
			continue
		}
		own[e.Field] = e.Value
	}
	changed := false
	variants := make([]weir.Limit, len(p.set.tiers))
	for i, tier := range p.set.tiers {
		t := l.base
		variants[i] = t
		at, mine := own[tier]
		if mine {
			m := at.Map(numberFields...)
			t.Rate = m.Get("rate").Required().Int(1, maxRate)
			if per := m.Get("per"); per.Present() {
				if t.Per = p.per(per); l.base.Calendar != weir.NoCalendar {
					per.Errorf("per with calendar: the calendar says how long, remove one of both")
					t.Per = 0
				}
			}
			t.Burst = 0
			if burst := m.Get("burst"); burst.Present() {
				if t.Burst = burst.Int(1, maxRate); !isBucket(t.Algorithm) {
					burst.Errorf("burst with %s: only token_bucket and leaky_bucket have one", nameOf(t.Algorithm, algorithmNames, algorithms))
					t.Burst = 0
				}
			}
		} else {
			at = v
			if r.key.isGlobal() {
				continue // what all have together is no user's to multiply
			}
			t.Rate, t.Burst = times(t.Rate, p.multiply[i]), times(t.Burst, p.multiply[i])
		}
		changed = changed || t != l.base
		variants[i] = t
		if t == l.base || t.Rate == 0 || t.Per == 0 && t.Calendar == weir.NoCalendar {
			continue
		}
		if t.Rate > maxRate || t.Burst > maxRate {
			at.Errorf("in tier %q the rate is %d: multiplied it is at most %d", tier, max(t.Rate, t.Burst), int64(maxRate))
			continue
		}
		if err := l.base.Validate(); err == nil || mine {
			p.valid(at, t, l.soft)
		}
	}
	if changed {
		l.tiers = variants
	}
}

// times multiplies whole units, down to a whole, but to no less than one.
func times(n int64, by float64) int64 {
	if n == 0 {
		return 0
	}
	return max(1, int64(min(float64(n)*by, 2*maxRate)))
}

func isBucket(a weir.Algorithm) bool { return a == weir.TokenBucket || a == weir.LeakyBucket }

// plant is a rule that is to be put in the trees.
type plant struct {
	at      strictyaml.Value
	rule    *Rule
	pattern pattern
}

// plant puts the rules in the trees, the more general patterns first.
func (p *parser) plant() {
	slices.SortStableFunc(p.plants, func(a, b plant) int {
		af, al, aw := a.pattern.generality()
		bf, bl, bw := b.pattern.generality()
		return slices.Compare([]int{af, al, aw}, []int{bf, bl, bw})
	})
	planters := make(map[*place]plant)
	for _, one := range p.plants {
		for _, t := range p.trees(one.rule) {
			at, conflict := t.insert(one.pattern)
			if conflict != nil {
				p.conflict(one, planters[conflict])
				continue
			}
			if _, there := planters[at]; !there {
				planters[at] = one
			}
			at.add(one.rule)
		}
	}
}

// trees are those that a rule is to be found in.
func (p *parser) trees(r *Rule) (trees []*tree) {
	if len(r.When.Hosts) == 0 {
		return []*tree{&p.set.any}
	}
	if p.set.hosts == nil {
		p.set.hosts = make(map[string]*tree)
	}
	for _, host := range r.When.Hosts {
		if p.set.hosts[host] == nil {
			p.set.hosts[host] = new(tree)
		}
		trees = append(trees, p.set.hosts[host])
	}
	return trees
}

// conflict tells of two patterns where the later of both is.
func (p *parser) conflict(one, other plant) {
	line, column := one.at.Position()
	if l, c := other.at.Position(); slices.Compare([]int{l, c}, []int{line, column}) > 0 {
		one, other = other, one
	}
	line, _ = other.at.Position()
	one.at.Errorf("path %q conflicts with %q of rule %q on line %d: some paths match both, and neither is more specific; split the one that means less",
		one.pattern.text, other.pattern.text, other.rule.Name, line)
}

// entriesOf reads a map with any fields, if there is one.
func entriesOf(v strictyaml.Value) []strictyaml.Entry {
	if !v.Present() {
		return nil
	}
	return v.Entries()
}

// checkName refuses a name that a header or a metric could not show as it is.
func checkName(v strictyaml.Value, name string) {
	switch {
	case name == "" && v.IsText():
		v.Errorf("the name is empty")
	case len(name) > maxNameBytes:
		v.Errorf("name has %d bytes: use at most %d", len(name), maxNameBytes)
	case strings.ContainsFunc(name, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune(" ._:-", c)
	}):
		v.Errorf("name is %q: use letters, digits, spaces and . _ : -", name)
	}
}

// duration reads a duration, in quotes or not. Zero is refused like any other
// that is too short.
func duration(v strictyaml.Value, low, high time.Duration) time.Duration {
	return v.Unquoted().Duration(low, high)
}

func oneOf(v strictyaml.Value, what string, known []string) string {
	if !v.Present() {
		return known[0]
	}
	if name := v.OneOf(what, known); name != "" {
		return name
	}
	return known[0]
}

// named reads a name of one of the values, the first if there is none.
func named[T any](v strictyaml.Value, what string, names []string, values []T) T {
	return values[slices.Index(names, oneOf(v, what, names))]
}

func nameOf[T comparable](value T, names []string, values []T) string {
	if i := slices.Index(values, value); i >= 0 {
		return names[i]
	}
	return fmt.Sprint(value)
}
