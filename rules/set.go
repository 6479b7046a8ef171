package rules

// Set is a file's rules, compiled. It never changes, and is safe for concurrent
// use.
type Set struct {
	rules []*Rule
}

// Parse reads a file, YAML or JSON, of at most 1 MiB (which is as much as a
// ConfigMap holds). The name is for the errors alone. An error is everything
// that is wrong, joined, each with file, line and column.
func Parse(name string, text []byte) (*Set, error) { panic("rules: not yet") }

// Rules are in the order of the file. They must not be changed.
func (s *Set) Rules() []*Rule { return s.rules }

// Enabled is false if the file switches the whole limiter off.
func (s *Set) Enabled() bool { panic("rules: not yet") }

// Version is the file's version, which each of its limits has.
func (s *Set) Version() uint64 { panic("rules: not yet") }

// Tiers are the names of the tiers, in the order of the file.
func (s *Set) Tiers() []string { panic("rules: not yet") }

// Tier is the tier that a request of the given one counts as: itself, if the
// file has it, else the default tier, which may be empty.
func (s *Set) Tier(tier string) string { panic("rules: not yet") }

// Text is the file that the Set was made of. It must not be changed.
func (s *Set) Text() []byte { panic("rules: not yet") }

// Exempt says whether a request is never limited: its address, user or API key
// is exempt. Match then finds no rule.
func (s *Set) Exempt(r *Request) bool { panic("rules: not yet") }

// Match appends to dst the rules that a request meets, in the order of the file: none if it
// is exempt or the limiter is switched off. It allocates nothing where dst has
// the room, unless the path is not clean, or has escapes, or the host has upper
// case.
func (s *Set) Match(r *Request, dst []*Rule) []*Rule { panic("rules: not yet") }

// Limit finds a limit by its name.
func (s *Set) Limit(name string) (l *Limit, r *Rule, ok bool) { panic("rules: not yet") }

// Schema is the JSON Schema (2020-12) of a file, by which editors complete it.
func Schema() []byte { panic("rules: not yet") }
