package rules

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir"
)

// blockPrefix begins the names of published Blocks: block/ip/192.0.2.0/24, block/user/ID,
// block/api_key/ID and block/key/RULE/ID. A name has the ID of a user or a key instead of its text. A
// network is published as text, because other nodes compare the address of each client with the network.
const blockPrefix = "block/"

// Name returns the text that identifies a Block of an operator: its kind, the rule of a BlockKey, and
// the network or, in hexadecimal digits, the ID.
func (b *Block) Name() string {
	switch b.Kind {
	case BlockIP:
		return "ip/" + b.Network.String()
	case BlockKey:
		return "key/" + b.Rule + "/" + hex.EncodeToString(b.ID[:])
	}
	return b.Kind.String() + "/" + hex.EncodeToString(b.ID[:])
}

// setName sets the fields that a Name contains.
func (b *Block) setName(name string) error {
	wrong := fmt.Errorf("%q is not the name of a block: use ip/NETWORK, user/ID, api_key/ID or key/RULE/ID", name)
	kind, rest, _ := strings.Cut(name, "/")
	if blockKindTable.UnmarshalText(&b.Kind, []byte(kind)) != nil {
		return wrong
	}
	var err error
	switch b.Kind {
	case BlockIP:
		b.Network, _ = networkOf(rest)
	case BlockKey:
		err = cutID(rest, &b.Rule, &b.ID)
	default:
		err = cutID(name, &kind, &b.ID)
	}
	if err != nil || b.Name() != name || b.Kind == BlockIP && !b.Network.IsValid() {
		return wrong
	}
	return nil
}

// blocks are the Blocks of operators in a Snapshot.
type blocks struct {
	clients[[16]byte]
	keys           []map[[16]byte]*Block // indexed by Rule.Index; nil if no key of the rule is blocked
	all            []*Block              // also those of rules that are not in the file
	users, apiKeys *weir.Limiter         // for the IDs of users and API keys
	ofRules        []*weir.Limiter       // indexed by Rule.Index, for the IDs of keys; nil if no key is blocked
}

// newBlockIDs returns a Limiter that only computes the IDs for a kind of Blocks. The name of its limit begins
// with a slash, unlike the names of the limits of rules.
func newBlockIDs(node *weir.Node, kind BlockKind, rule string) (*weir.Limiter, error) {
	name := "/block/" + kind.String()
	if kind == BlockKey {
		name += "/" + rule
	}
	return node.Limiter(weir.Limit{Name: name, Rate: 1, Per: time.Second, Varies: true, SecretKeys: true})
}

// apply adds the Block to s.
func (b *Block) apply(book *Book, s *Snapshot) {
	if s.blocks == nil {
		s.blocks = &blocks{keys: make([]map[[16]byte]*Block, len(s.rules)), ofRules: make([]*weir.Limiter, len(s.rules))}
	}
	of := s.blocks
	of.all = append(of.all, b)
	ids := func(has **weir.Limiter) bool {
		if *has == nil {
			*has, _ = newBlockIDs(book.node, b.Kind, b.Rule) // the only error is that the node is closed
		}
		return *has != nil
	}
	switch b.Kind {
	case BlockIP:
		of.networks = append(of.networks, network[*Block]{prefix: b.Network, value: b})
	case BlockUser:
		if ids(&of.users) {
			of.clients.users = put(of.clients.users, b.ID, b)
		}
	case BlockAPIKey:
		if ids(&of.apiKeys) {
			of.clients.apiKeys = put(of.clients.apiKeys, b.ID, b)
		}
	case BlockKey:
		if r := s.rule(b.Rule); r != nil && ids(&of.ofRules[r.Index]) {
			of.keys[r.Index] = put(of.keys[r.Index], b.ID, b)
		}
	}
}

// find returns the Block of the client of a request, or nil.
func (s *blocks) find(r *Request, now func() time.Time) *Block {
	b := findBlocked(s.networks, r.Client, now)
	if b == nil && s.users != nil && r.User != "" {
		b = inForce(s.clients.users[s.users.ID(r.User)], now)
	}
	if b == nil && s.apiKeys != nil && r.APIKey != "" {
		b = inForce(s.clients.apiKeys[s.apiKeys.ID(r.APIKey)], now)
	}
	return b
}

// Block refuses a client, or a key of o.Rule, on all nodes, and replaces an earlier Block of this client or
// key: the last writer wins. The text is an address or a network, a user, an API key or a key, as o.Kind states.
// Block sets the fields Network, ID and At of o, and clears Rule unless Kind is BlockKey. Only a
// network is published as text. The Block is in force on this node at once, and on other nodes when it
// arrives there. While nodes cannot reach each other, each side obeys its own Block. The error is
// weir.ErrInvalid for an invalid Block, or if the published values are full, or an error of
// weir.Node.Publish. No error has the text of a user or a key.
func (b *Book) Block(text string, o Block) (Block, error) {
	o, err := b.identify(text, o)
	if err == nil {
		err = o.prepare("Block", b.now())
	}
	if err == nil {
		err = b.publish(blockPrefix+o.Name(), o)
	}
	return o, err
}

// identify returns o with its Network or ID.
func (b *Book) identify(text string, o Block) (Block, error) {
	switch {
	case o.Kind >= blockKinds:
		return o, fmt.Errorf("%w Block: Kind is %d: use BlockIP, BlockUser, BlockAPIKey or BlockKey", weir.ErrInvalid, o.Kind)
	case o.Kind == BlockKey && b.Current().rule(o.Rule) == nil:
		return o, fmt.Errorf("%w Block: there is no rule %q", weir.ErrInvalid, o.Rule)
	case o.Kind != BlockKey:
		o.Rule = ""
	}
	o.Network, o.ID = netip.Prefix{}, [16]byte{}
	switch {
	case o.Kind == BlockIP:
		var ok bool
		if o.Network, ok = networkOf(text); !ok {
			return o, fmt.Errorf("%w Block: %q is no address or network: use one like 192.0.2.1 or 10.0.0.0/8", weir.ErrInvalid, text)
		}
		return o, nil
	case text == "" || len(text) > maxKeyBytes:
		return o, fmt.Errorf("%w Block: the %s has %d bytes: use 1 to %d", weir.ErrInvalid, o.Kind, len(text), maxKeyBytes)
	}
	ids, err := newBlockIDs(b.node, o.Kind, o.Rule)
	if err == nil {
		o.ID = ids.ID(text)
	}
	return o, err
}

// Unblock deletes the Block of a client or a key on all nodes. The arguments are as for Block, and
// only Kind and Rule of o are used. Without a Block, Unblock does nothing. A Block of the file stays.
// Unblock returns the Block that it looked for, and the same errors as Block.
func (b *Book) Unblock(text string, o Block) (Block, error) {
	o, err := b.identify(text, o)
	if err == nil {
		err = b.withdraw(blockPrefix + o.Name())
	}
	return o, err
}

// UnblockName deletes the Block with the given Name on all nodes. The rule need not be in the file any more.
// Without a Block, UnblockName does nothing. The error is weir.ErrInvalid if Block.Name returns no such text, or
// an error of weir.Node.Publish.
func (b *Book) UnblockName(name string) error {
	if err := new(Block).setName(name); err != nil {
		return fmt.Errorf("%w Block: %w", weir.ErrInvalid, err)
	}
	return b.withdraw(blockPrefix + name)
}

// Blocks returns the Blocks of operators, sorted by kind, network and Name. A Block that has just ended may be
// among them.
func (b *Book) Blocks() []Block {
	var all []Block
	if s := b.Current(); s.blocks != nil {
		for _, block := range s.blocks.all {
			all = append(all, *block)
		}
	}
	slices.SortFunc(all, func(a, b Block) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), a.Network.Compare(b.Network), strings.Compare(a.Rule, b.Rule), bytes.Compare(a.ID[:], b.ID[:]))
	})
	return all
}

// rule returns the rule of a name, or nil.
func (s *Set) rule(name string) *Rule {
	if i := slices.IndexFunc(s.rules, func(r *Rule) bool { return r.Name == name }); i >= 0 {
		return s.rules[i]
	}
	return nil
}
