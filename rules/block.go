package rules

import (
	"cmp"
	"net/netip"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/enum"
)

// Block refuses the requests of a client, or of a key of a rule. A refused request spends nothing. The Block
// of a client also refuses requests that are exempt.
type Block struct {
	Control              // By and At are zero in a Block of the file. Clients do not receive the Reason
	Kind    BlockKind    `json:"-"`
	Network netip.Prefix `json:"-"` // addresses of a BlockIP; for a single address, the prefix has all of its bits
	Rule    string       `json:"-"` // name of the rule of BlockKey
	ID      [16]byte     `json:"-"` // for a user, an API key or a key that an operator blocked: its keyed hash, because the text is never published
}

// BlockKind is the kind of the clients or keys that a Block refuses.
type BlockKind uint8

// The kinds of a Block.
const (
	BlockIP     BlockKind = iota // an address, or the addresses of a network
	BlockUser                    // a user
	BlockAPIKey                  // an API key
	BlockKey                     // a key of a rule

	blockKinds
)

var blockKindTable = enum.Table[BlockKind]{What: "kind of block", Names: []string{"ip", "user", "api_key", "key"}}

// String returns the name of a kind: ip, user, api_key or key.
func (k BlockKind) String() string { return blockKindTable.String(k) }

// outlasts reports whether a Block ends later than another.
func (b *Block) outlasts(other *Block) bool {
	return b.end().After(other.end())
}

// end returns Until, or a time after all others if there is no end.
func (b *Block) end() time.Time { return cmp.Or(b.Until, time.Unix(1<<60, 0)) }

// TimeLeft returns the time until the end of a Block, at most 100 years, and 0 if the Block has ended or has no end.
func (b *Block) TimeLeft(now time.Time) time.Duration {
	if b.Until.IsZero() {
		return 0
	}
	return min(max(0, b.Until.Sub(now)), 100*365*24*time.Hour)
}

// clients is a set of clients with a Block for each. The Block of an exempt client has only its Kind and
// Network.
type clients[T comparable] struct {
	networks networks[*Block]
	users    map[T]*Block
	apiKeys  map[T]*Block
}

func (c *clients[T]) count() int { return len(c.networks) + len(c.users) + len(c.apiKeys) }

// put adds a Block to a map. Of several Blocks with the same key of the map, put keeps the last to end.
func put[T comparable](all map[T]*Block, of T, b *Block) map[T]*Block {
	if all == nil {
		all = make(map[T]*Block)
	}
	if has := all[of]; has == nil || b.outlasts(has) {
		all[of] = b
	}
	return all
}

// sortBlocked sorts networks. Of several Blocks of a network, sortBlocked keeps the last to end.
func sortBlocked(all networks[*Block]) networks[*Block] {
	return sortNetworks(all, func(a, b *Block) int { return b.end().Compare(a.end()) })
}

// findBlocked returns a Block in force of a network that includes an address, or nil.
func findBlocked(all networks[*Block], client netip.Addr, now func() time.Time) *Block {
	for i := all.find(client); i >= 0; i = all[i].around {
		if b := inForce(all[i].value, now); b != nil {
			return b
		}
	}
	return nil
}

// inForce returns b, or nil if b is nil or has ended.
func inForce(b *Block, now func() time.Time) *Block {
	if b == nil || !b.Until.IsZero() && b.isPast(now()) {
		return nil
	}
	return b
}

// exempts reports whether the set has the client of a request.
func exempts(c *clients[string], r *Request) bool {
	return c.users[r.User] != nil || c.apiKeys[r.APIKey] != nil || // no user or API key in a file is empty
		findBlocked(c.networks, r.Client, nil) != nil
}

// Block returns the Block of the file for the client of a request, or nil. If all rules are off, no
// client is blocked.
func (s *Set) Block(r *Request) *Block { return s.block(r, time.Now) }

func (s *Set) block(r *Request, now func() time.Time) *Block {
	if s.deny.count() == 0 {
		return nil
	}
	b := cmp.Or(findBlocked(s.deny.networks, r.Client, now), inForce(s.deny.users[r.User], now), inForce(s.deny.apiKeys[r.APIKey], now))
	if b == nil || !s.Enabled() {
		return nil
	}
	return b
}

// KeyBlock returns the Block of the file for a key of a rule, or nil. The caller must enforce the Block only
// if the Mode of the rule is Enforce.
func (s *Set) KeyBlock(r *Rule, key string) *Block {
	return inForce(s.denyKeys[ruleKey{r.Index, key}], time.Now)
}

// countBlocks returns the number of Blocks of the file.
func (s *Set) countBlocks() int { return s.deny.count() + len(s.denyKeys) }

// ruleKey is a key of a rule.
type ruleKey struct {
	rule int // Rule.Index
	key  string
}

// Block returns the Block for the client of a request, or nil. A Block of the file
// takes precedence over a Block of an operator.
func (s *Snapshot) Block(r *Request) *Block {
	b := s.Set.block(r, s.now)
	if b != nil || s.blocks == nil {
		return b
	}
	if b = s.blocks.find(r, s.now); b == nil || !s.Enabled() {
		return nil
	}
	return b
}

// KeyBlock returns the Block for a key of a limit, or nil. The Block is that of a key of the rule, or
// stands for an Override with Rate 0. KeyBlock ignores the Blocks of clients: see ClientBlock. The
// caller must enforce the Block only if Snapshot.ModeFor returns Enforce for the key.
func (s *Snapshot) KeyBlock(l *Limit, key string) *Block {
	rule := s.ruleOf[l.Index].Index
	if b := inForce(s.denyKeys[ruleKey{rule, key}], s.now); b != nil {
		return b
	}
	if s.blocks != nil && s.blocks.keys[rule] != nil {
		if b := inForce(s.blocks.keys[rule][s.blocks.ofRules[rule].ID(key)], s.now); b != nil {
			return b
		}
	}
	if of := s.overrides[l.Index]; of != nil {
		if o := of[s.id(l, key)]; o != nil {
			return inForce(o.block, s.now)
		}
	}
	return nil
}

// ClientBlock returns the Block for the client whose address, user or API key is the given key of a limit,
// or nil. It is for calls that have a key and no Request. The result is nil if the key of the rule
// has several parts, or a source that does not name a client.
func (s *Snapshot) ClientBlock(l *Limit, key string) *Block {
	parts := s.ruleOf[l.Index].key.parts
	if len(parts) != 1 {
		return nil
	}
	var r Request
	text := ""
	if !strings.HasPrefix(key, `\-`) && !strings.HasPrefix(key, `\#`) {
		text = unescapeKey.Replace(key)
	}
	switch parts[0].from {
	case fromClient:
		network, _ := networkOf(key)
		r.Client = network.Addr()
	case fromUser:
		r.User = text
	case fromAPIKey:
		r.APIKey = text
	}
	return s.Block(&r)
}

// unescapeKey reverses the escapes of the characters | and \ in a part of a key.
var unescapeKey = strings.NewReplacer(`\|`, `|`, `\\`, `\`)

// RecordRefusal counts a request that a Block refused, for BookStats.Blocked.
func (s *Snapshot) RecordRefusal(b *Block) { s.blocked[b.Kind].Add(1) }
