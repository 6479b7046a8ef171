package pgrules

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weir-go/weir"
)

// Schema is the SQL that creates the table weir_rules and its triggers, in the first schema
// of the search_path. Executing it again changes nothing. It needs Postgres 11 or newer.
//
//go:embed schema.sql
var Schema string

const (
	defaultPoll = 5 * time.Second
	timeout     = 5 * time.Second // default of connect_timeout
)

// Options are the options of [New]. Name is required.
type Options struct {
	// Connection is a URL or a list of keys and values, as psql accepts them. It may name
	// several hosts. Missing values come from the environment (PGHOST, PGPASSWORD, ...) and
	// from the files of passwords and services. The connect_timeout, 5 s by default, also
	// bounds a query. The server is authenticated only with sslmode=verify-full.
	Connection string
	// Name is the name of the row in the table weir_rules.
	Name string
	// Poll is the interval at which the row is queried although no notification has arrived. 0
	// means 5 s.
	Poll time.Duration
}

// parse returns the configuration of the connection.
func (o Options) parse() (*pgconn.Config, error) {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w pgrules.Options: %s", weir.ErrInvalid, fmt.Sprintf(format, args...)))
	}
	if o.Name == "" {
		wrong("Name is empty: use the name of a row in the table weir_rules")
	}
	if o.Poll < 0 {
		wrong("Poll is %v: use a positive time, or 0 for %v", o.Poll, defaultPoll)
	}
	config, err := pgconn.ParseConfig(o.Connection)
	switch file := new(fs.PathError); {
	case errors.As(err, &file):
		wrong("Connection: %v", file)
	case err != nil: // err may contain a part of the password
		wrong("Connection, or the PG variables of the environment, cannot be parsed: use postgres://USER@HOST/DATABASE, and try it with psql")
	}
	return config, errors.Join(errs...)
}

// connecting marks the context of a connection attempt.
type connecting struct{}

var errNoCancel = errors.New("pgrules: the query of a broken connection is not canceled")

// prepare sets the parameters of the connections. The client of Postgres also dials to cancel
// the query of a broken connection. prepare prevents this, because the query is short, and the
// host may be gone.
func prepare(config *pgconn.Config) {
	config.ConnectTimeout = cmp.Or(config.ConnectTimeout, timeout)
	config.RuntimeParams["client_encoding"] = "UTF8"
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "weir"
	}
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if ctx.Value(connecting{}) == nil {
			return nil, errNoCancel
		}
		return dial(ctx, network, address)
	}
}
