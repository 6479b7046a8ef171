package admin

import (
	"net/http"

	"github.com/weir-go/weir/rules"
)

// blockAnswer is a block. ID stands for the user, the API key or the key, whose text is not published.
type blockAnswer struct {
	ID   string `json:"id"`
	Kind string `json:"kind"`
	IP   string `json:"ip,omitempty"`
	Rule string `json:"rule,omitempty"`
	controlAnswer
}

func showBlock(b rules.Block) blockAnswer {
	a := blockAnswer{ID: b.Name(), Kind: b.Kind.String(), Rule: b.Rule, controlAnswer: showControl(&b.Control)}
	if b.Kind == rules.BlockIP {
		a.IP = b.Network.String()
	}
	return a
}

type blocksAnswer struct {
	Blocks []blockAnswer `json:"blocks"`
}

// blocks returns the blocks of operators.
func (a *api) blocks(*request) (int, any, error) {
	return http.StatusOK, blocksAnswer{showAll(a.book.Blocks(), showBlock)}, nil
}

// blocked selects the client or the key of a block: exactly one of an address or network, a user, an API
// key, and a rule with a key.
type blocked struct{ ip, user, apiKey, rule, key string }

func (b *blocked) fields() []field {
	return []field{
		{name: "ip", into: &b.ip}, {name: "user", into: &b.user}, {name: "api_key", into: &b.apiKey},
		{name: "rule", into: &b.rule}, {name: "key", into: &b.key},
	}
}

// find returns the text of the selected client or key, and a Block of its kind.
func (b *blocked) find(s *rules.Snapshot) (text string, of rules.Block, err error) {
	set := 0
	for kind, value := range []string{b.ip, b.user, b.apiKey, b.key} {
		if value != "" {
			set++
			text, of.Kind = value, rules.BlockKind(kind)
		}
	}
	if set != 1 || (b.key != "") != (b.rule != "") {
		return "", of, refuse(http.StatusBadRequest, "send one of ip, user, api_key, or rule with key")
	}
	if of.Rule = b.rule; of.Kind == rules.BlockKey && b.rule != rules.AllRules {
		err = checkRule(s, b.rule)
	}
	return text, of, err
}

// setBlock blocks a client or a key of a rule.
func (a *api) setBlock(r *request) (int, any, error) {
	var (
		b  blocked
		of rules.Control
	)
	if err := r.body(append(b.fields(), r.controlFields(&of)...)...); err != nil {
		return 0, nil, err
	}
	text, block, err := b.find(r.rules)
	if err != nil {
		return 0, nil, err
	}
	block.Control = of
	if block, err = a.book.Block(text, block); err != nil {
		return 0, nil, err
	}
	answer := showBlock(block)
	a.log.Info("an operator set a block", controlAttributes(&block.Control, r, "id", answer.ID)...)
	return http.StatusOK, answer, nil
}

// deleteBlock removes a block, by its client or key, or by an id of the list.
func (a *api) deleteBlock(r *request) (int, any, error) {
	var (
		b  blocked
		id string
	)
	err := r.parameters(append(b.fields(), field{name: "id", into: &id})...)
	switch {
	case err != nil:
	case id != "" && b == blocked{}:
		err = a.book.UnblockName(id)
	case id != "":
		err = refuse(http.StatusBadRequest, "id already names a block: send no other parameter")
	default:
		var text string
		var block rules.Block
		if text, block, err = b.find(r.rules); err == nil {
			block, err = a.book.Unblock(text, block)
			id = block.Name()
		}
	}
	if err != nil {
		return 0, nil, err
	}
	a.log.Info("an operator removed a block", "id", id, "client", r.by, "addr", r.RemoteAddr)
	return http.StatusNoContent, nil, nil
}
