package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// blockCommand sets, removes or lists blocks.
type blockCommand struct {
	asking
	blocked
	controlling
	Remove bool   `help:"remove the block"`
	ID     string `name:"id" placeholder:"ID" help:"with -remove, the ID of a block in the list"`
}

// blocked contains the flags that name a client or a key of a rule.
type blocked struct {
	IP      string `name:"ip" placeholder:"NETWORK" help:"an address or a network, such as 192.0.2.0/24"`
	User    string `placeholder:"NAME" help:"a user"`
	APIKey  string `name:"api_key" placeholder:"KEY" help:"an API key"`
	Rule    string `placeholder:"RULE" help:"the rule of -rule_key"`
	RuleKey string `placeholder:"KEY" help:"a key of the rule"`
}

// values returns the fields of a request that name the client or the key.
func (b *blocked) values() map[string]string {
	all := map[string]string{"ip": b.IP, "user": b.User, "api_key": b.APIKey, "rule": b.Rule, "key": b.RuleKey}
	for name, value := range all {
		if value == "" {
			delete(all, name)
		}
	}
	return all
}

// Help shows the uses.
func (*blockCommand) Help() string {
	return "All members refuse the requests of a blocked client within a second. Without flags, the command lists the blocks:\n\n  weir block -ip 192.0.2.0/24 -for 1h -reason scanner\n  weir block -user mallory\n  weir block -rule login -rule_key 192.0.2.7\n  weir block -ip 192.0.2.0/24 -remove\n  weir block"
}

// Validate returns an error unless the flags name a block to set or to remove, or nothing.
func (q *blockCommand) Validate() error {
	switch named := len(q.values()); {
	case q.Remove && q.isSet():
		return errors.New("-remove is set with -for, -by or -reason: leave these out")
	case q.ID != "" && (!q.Remove || named > 0):
		return errors.New("-id is only for -remove, without -ip, -user, -api_key and -rule")
	case q.Remove && named == 0 && q.ID == "" || q.isSet() && named == 0:
		return errors.New("no client is named: set -ip, -user, -api_key, or -rule with -rule_key")
	case (q.Rule == "") != (q.RuleKey == ""):
		return errors.New("-rule and -rule_key need each other: set both")
	case named > 1 && q.Rule == "" || named > 2:
		return errors.New("several clients are named: set one of -ip, -user, -api_key, or -rule with -rule_key")
	}
	return q.checkEnd()
}

func (q *blockCommand) ask(ctx context.Context, c *client) (int, error) {
	values := q.values()
	switch {
	case q.Remove:
		if q.ID != "" {
			values["id"] = q.ID
		}
		return c.remove(ctx, "/v1/blocks?"+encode(values), "no block")
	case len(values) == 0:
		return q.list(ctx, c)
	}
	return q.set(ctx, c, "/v1/blocks", "block", values, q.control())
}

// list prints the blocks that have not ended.
func (q *blockCommand) list(ctx context.Context, c *client) (int, error) {
	type item struct {
		ID string
		At time.Time
		control
	}
	var answer struct{ Blocks []item }
	return ok, q.print(ctx, c, http.MethodGet, "/v1/blocks", nil, &answer, func() {
		printTable(c.stdout, "BLOCK\tEND\tBY\tAT\tREASON", answer.Blocks, func(b item) string {
			return fmt.Sprintf("%s\t%s\t%s\t%s\t%s", b.ID, &b.control, b.By, b.At.Format(time.RFC3339), b.Reason)
		})
	})
}
