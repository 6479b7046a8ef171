package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/rules"
)

type rulesFlags struct {
	Rules      string        `placeholder:"PLACE" help:"rules, which are reloaded when they change (docs/rules.md): a file, a directory of files *.yaml, or a URL of http or https; none if empty"`
	RulesCache string        `placeholder:"FILE" help:"file of this process that keeps the last good rules, for a start while -rules fails; none if empty"`
	RulesPoll  time.Duration `help:"interval at which -rules is read, besides the events of a file; 5s if 0"`
	RulesToken string        `placeholder:"FILE" help:"file with the bearer token for the URL of -rules; none if empty"`
}

// openBook opens the rules of the flags.
func (o *rulesFlags) openBook(ctx context.Context, node *weir.Node, log *slog.Logger) (*rules.Book, error) {
	tokens, err := readTokens(o.RulesToken)
	if err == nil && len(tokens) > 1 {
		err = fmt.Errorf("%s has %d tokens: write one", o.RulesToken, len(tokens))
	}
	if err != nil {
		return nil, inFlag("rules_token", err)
	}
	source, err := rules.NewSource(o.Rules, rules.SourceOptions{Logger: log, Poll: o.RulesPoll, Token: string(bytes.Join(tokens, nil))})
	var book *rules.Book
	if err == nil {
		book, err = rules.OpenSource(ctx, node, source, rules.BookOptions{Logger: log, Cache: o.RulesCache})
	}
	if err != nil {
		return nil, inFlag("rules", err)
	}
	return book, nil
}

// readRules reads the rules at a place once.
func readRules(place string) (rules.Text, error) {
	if info, err := os.Stat(place); !strings.Contains(place, "://") && (err != nil || !info.IsDir()) {
		text, err := readFile(place)
		return rules.Text{Name: place, Bytes: text}, err
	}
	source, err := rules.NewSource(place, rules.SourceOptions{})
	if err != nil {
		return rules.Text{}, err
	}
	return source.Next(context.Background(), "")
}

// maxFile is larger than the maximum of rules.Parse. It bounds the read of an endless
// file, such as a device. Pipes are allowed, because a caller that waits for a pipe can
// interrupt the command.
const maxFile = 8 << 20

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile))
}
