// Package service starts a node for a service, and ends it in order. A service may use it or
// do the same itself by exported calls. Only the package warns if other users of the machine can
// read the file of secrets.
//
//	o, err := service.FromEnv()
//	s, err := service.Start(ctx, o)
//	limit, err := httplimit.New(s.Node, s.Book, httplimit.Options{})
//	err = s.Serve(ctx, service.HTTP(&http.Server{Addr: ":8080", Handler: limit.Handler(mux)}))
package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

// Options say what a service starts with. The zero Options are a node alone.
type Options struct {
	Node        weir.Config
	Shared      string        // a file with the secrets and the seed of all replicas, as weir secret prints them; those of Node if empty
	Rules       string        // a file of rules, which is watched; without one there is no Book
	LeaveWithin time.Duration // how long an orderly end may take; 15 s if zero
}

// FromEnv returns what the environment has, under the names of weir serve: WEIR_BIND,
// WEIR_ADVERTISE, WEIR_JOIN with commas, WEIR_EXPECT, WEIR_SHARED and WEIR_RULES.
func FromEnv() (Options, error) {
	o := Options{
		Node:   weir.Config{Bind: os.Getenv("WEIR_BIND"), Advertise: os.Getenv("WEIR_ADVERTISE")},
		Shared: os.Getenv("WEIR_SHARED"), Rules: os.Getenv("WEIR_RULES"),
	}
	for address := range strings.SplitSeq(os.Getenv("WEIR_JOIN"), ",") {
		if address = strings.TrimSpace(address); address != "" {
			o.Node.Join = append(o.Node.Join, address)
		}
	}
	if text := os.Getenv("WEIR_EXPECT"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			return o, fmt.Errorf("service: WEIR_EXPECT is %q: use how many replicas there normally are, like 3", text)
		}
		o.Node.Expect = n
	}
	return o, nil
}

// Service is a node, and its rules.
type Service struct {
	Node *weir.Node
	Book *rules.Book // nil without Options.Rules

	leaveWithin time.Duration
}

// Start starts the node and opens the rules. Serve or Close ends both.
func Start(ctx context.Context, o Options) (*Service, error) {
	if o.Shared != "" {
		secrets, seed, err := weir.ReadSecrets(o.Shared)
		if err != nil {
			return nil, err
		}
		if secrets == nil {
			return nil, fmt.Errorf("service: %s has no line that begins with secret: write one that weir secret prints", o.Shared)
		}
		identity.WarnOfReaders(cmp.Or(o.Node.Logger, slog.Default()), o.Shared)
		o.Node.Secrets = secrets
		if seed != nil {
			o.Node.Seed = seed
		}
	}
	node, err := weir.Start(ctx, o.Node)
	if err != nil {
		return nil, err
	}
	s := &Service{Node: node, leaveWithin: cmp.Or(o.LeaveWithin, 15*time.Second)}
	if o.Rules == "" {
		return s, nil
	}
	if s.Book, err = rules.Open(ctx, node, o.Rules, rules.BookOptions{}); err != nil {
		return nil, errors.Join(err, node.Close())
	}
	return s, nil
}

// Server is a server of any kind. Serve returns once Shutdown is called, or with what went
// wrong; Shutdown answers what is under way, and ends with its context.
type Server struct {
	Serve    func() error
	Shutdown func(context.Context) error
}

// HTTP is a Server of net/http, at its Addr.
func HTTP(s *http.Server) Server { return Server{s.ListenAndServe, s.Shutdown} }

// Serve serves until ctx ends or a server fails, and then ends in order: the node hands its
// counts over while requests are still answered, servers shut down, and all is closed. The
// error is what a server failed with, and what went wrong at the end.
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
		case <-served: // that it was shut down
		case <-ctx.Done():
		}
	}
	return errors.Join(err, s.Close())
}

// Close ends the node at once, and its rules. Serve does so by itself.
func (s *Service) Close() error {
	if s.Book != nil {
		s.Book.Close()
	}
	return s.Node.Close()
}
