package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/identity"
	"github.com/weir-go/weir/rules"
)

// Options configure a Service. The zero Options are valid: they start a node without a network and
// without rules.
type Options struct {
	Node        weir.Config
	Shared      string        // file with the secrets and the seed of all nodes, in the format of weir secret; those of Node are used if empty
	Rules       string        // file, directory or URL of rules, as for rules.NewSource; there is no Book if Rules is empty and Source is nil
	Source      rules.Source  // source of the rules, in place of Rules
	RulesCache  string        // file of this process for the last good rules, as rules.BookOptions.Cache; none if empty
	LeaveWithin time.Duration // maximum time to stop; 15 s if zero
}

// FromEnv returns the Options in the environment. It reads these variables of weir serve: WEIR_BIND,
// WEIR_ADVERTISE, WEIR_JOIN (addresses separated by commas), WEIR_EXPECT, WEIR_SHARED, WEIR_RULES and
// WEIR_RULES_CACHE. It returns an error if WEIR_EXPECT is not a number.
func FromEnv() (Options, error) {
	o := Options{
		Node:   weir.Config{Bind: os.Getenv("WEIR_BIND"), Advertise: os.Getenv("WEIR_ADVERTISE")},
		Shared: os.Getenv("WEIR_SHARED"), Rules: os.Getenv("WEIR_RULES"), RulesCache: os.Getenv("WEIR_RULES_CACHE"),
	}
	for address := range strings.SplitSeq(os.Getenv("WEIR_JOIN"), ",") {
		if address = strings.TrimSpace(address); address != "" {
			o.Node.Join = append(o.Node.Join, address)
		}
	}
	if text := os.Getenv("WEIR_EXPECT"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			return o, fmt.Errorf("service: WEIR_EXPECT is %q: use the normal number of nodes, like 3", text)
		}
		o.Node.Expect = n
	}
	return o, nil
}

// Service is a node with its rules.
type Service struct {
	Node *weir.Node
	Book *rules.Book // nil without Options.Rules and Options.Source

	leaveWithin time.Duration
}

// Start starts the node and opens the rules. Serve and Close stop both. A Source with a method Close() error
// is closed together with the Book, or by Start if Start returns an error.
func Start(ctx context.Context, o Options) (*Service, error) {
	source, err := o.source()
	var node *weir.Node
	if err == nil {
		node, err = o.startNode(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, o.closeSource())
	}
	s := &Service{Node: node, leaveWithin: cmp.Or(o.LeaveWithin, 15*time.Second)}
	if source == nil {
		return s, nil
	}
	if s.Book, err = rules.OpenSource(ctx, node, source, rules.BookOptions{Logger: o.Node.Logger, Cache: o.RulesCache}); err != nil {
		return nil, errors.Join(err, node.Close())
	}
	return s, nil
}

// startNode starts the node, with the secrets and the seed of the file Shared.
func (o *Options) startNode(ctx context.Context) (*weir.Node, error) {
	if o.Shared != "" {
		secrets, seed, err := weir.ReadSecrets(o.Shared)
		if err != nil {
			return nil, err
		}
		if secrets == nil {
			return nil, fmt.Errorf("service: %s has no line that begins with \"secret:\": add such a line from the output of `weir secret`", o.Shared)
		}
		identity.WarnOfReaders(cmp.Or(o.Node.Logger, slog.Default()), o.Shared)
		o.Node.Secrets = secrets
		if seed != nil {
			o.Node.Seed = seed
		}
	}
	return weir.Start(ctx, o.Node)
}

// closeSource closes the Source if it has a method Close. No Book must own the Source.
func (o *Options) closeSource() error {
	if c, is := o.Source.(io.Closer); is {
		return c.Close()
	}
	return nil
}

// source returns the source of the rules, or nil if there are no rules.
func (o *Options) source() (rules.Source, error) {
	switch {
	case o.Rules != "" && o.Source != nil:
		return nil, errors.New("service: Rules and Source are set: remove one of them")
	case o.Rules != "":
		return rules.NewSource(o.Rules, rules.SourceOptions{Logger: o.Node.Logger})
	case o.Source == nil && o.RulesCache != "":
		return nil, errors.New("service: RulesCache is set without Rules and Source: remove RulesCache, or set Rules or Source")
	}
	return o.Source, nil
}

// Server is a server of any kind. Serve returns after Shutdown was called, or with the error of
// the server. Shutdown finishes the current requests, and returns at the latest when its context is
// done.
type Server struct {
	Serve    func() error
	Shutdown func(context.Context) error
}

// HTTP returns a Server of net/http, which listens at its Addr.
func HTTP(s *http.Server) Server { return Server{s.ListenAndServe, s.Shutdown} }

// Serve runs the servers until ctx is done or a server returns, and then stops in order: the node
// transfers its counts while requests are still answered, the servers shut down, and the rules
// and the node are closed. The error joins the error of a server and the errors of stopping.
func (s *Service) Serve(ctx context.Context, servers ...Server) (err error) {
	served := make(chan error, len(servers))
	for _, server := range servers {
		go func() { served <- server.Serve() }()
	}
	running := len(servers)
	select {
	case err = <-served:
		running--
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.leaveWithin)
	defer cancel()
	err = errors.Join(err, s.Node.Leave(ctx))
	var ending errgroup.Group
	for _, server := range servers {
		ending.Go(func() error { return server.Shutdown(ctx) })
	}
	err = errors.Join(err, ending.Wait())
	for range running {
		select {
		case <-served: // the error only reports the shutdown
		case <-ctx.Done():
		}
	}
	return errors.Join(err, s.Close())
}

// Close stops the rules and the node at once. Serve calls Close.
func (s *Service) Close() (err error) {
	if s.Book != nil {
		err = s.Book.Close()
	}
	return errors.Join(err, s.Node.Close())
}
