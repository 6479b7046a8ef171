package pgrules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weir-go/weir/internal/strictyaml"
	"github.com/weir-go/weir/rules"
)

const (
	// pace is the minimum time between a query that has found no change and the next query. It
	// bounds the load by frequent notifications.
	pace = 100 * time.Millisecond
	// closeTimeout bounds the time in which a connection is closed.
	closeTimeout = time.Second
)

// Codes of errors of Postgres.
const (
	readOnly = "25006" // of LISTEN on a standby
	noTable  = "42P01" // of a query without the table
)

// query returns the version of a row, and the text of the row if that version differs from $2. The
// version has a hash of the text besides the revision: after a fail-over or a restored backup, the
// same revision may have another text.
var query = `SELECT version, CASE WHEN version <> $2 THEN left(text, ` + strconv.Itoa(strictyaml.MaxBytes+1) + `) END
FROM (SELECT text, revision || '-' || left(encode(sha256(convert_to(text, 'UTF8')), 'hex'), 12) AS version
	FROM weir_rules WHERE name = $1 AND text IS NOT NULL) AS present`

// Source reads a row of the table weir_rules. It is a rules.Source for one Book.
type Source struct {
	config *pgconn.Config
	name   string // name of the row
	poll   time.Duration

	conn    *pgconn.PgConn // nil if there is no connection
	read    time.Time      // begin of the last query
	changed bool           // whether a notification has arrived since the last query began
}

// New returns a Source. The Source connects in Next, so an unavailable server is not an error
// here. The error is weir.ErrInvalid, and names the remedy.
func New(o Options) (*Source, error) {
	config, err := o.parse()
	if err != nil {
		return nil, err
	}
	prepare(config)
	s := &Source{config: config, name: o.Name, poll: cmp.Or(o.Poll, defaultPoll)}
	config.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) { s.changed = true }
	return s, nil
}

// Name returns the address of the row, without user and password.
func (s *Source) Name() string {
	host := net.JoinHostPort(s.config.Host, strconv.Itoa(int(s.config.Port)))
	return "postgres://" + host + "/" + s.config.Database + "/weir_rules/" + s.name
}

// Next returns the present text as soon as its version differs from the argument known. A missing
// row is an error that wraps fs.ErrNotExist. After any other error, the next call connects
// again.
func (s *Source) Next(ctx context.Context, known string) (rules.Text, error) {
	for {
		text, err := s.present(ctx, known)
		if err == nil && text.Version == known {
			err = s.await(ctx)
		}
		if err != nil || text.Version != known {
			return text, err
		}
	}
}

// Close closes the connection. The Book of the Source calls it.
func (s *Source) Close() error {
	s.disconnect()
	return nil
}

// present returns the version of the row, and the text of the row if that version differs from
// known.
func (s *Source) present(ctx context.Context, known string) (rules.Text, error) {
	if err := s.connect(ctx); err != nil {
		return rules.Text{}, err
	}
	s.read, s.changed = time.Now(), false
	limited, cancel := context.WithTimeout(ctx, s.config.ConnectTimeout)
	defer cancel()
	result := s.conn.ExecParams(limited, query, [][]byte{[]byte(s.name), []byte(known)}, nil, nil, nil).Read()
	switch {
	case result.Err != nil:
		return rules.Text{}, s.fail(ctx, "query", result.Err)
	case len(result.Rows) == 0:
		return rules.Text{}, fmt.Errorf("pgrules: the table weir_rules has no row %q: insert the row: %w", s.name, fs.ErrNotExist)
	}
	row := result.Rows[0]
	return rules.Text{Name: "weir_rules/" + s.name, Bytes: row[1], Version: string(row[0])}, nil
}

// connect ensures that there is a connection. The connection listens for notifications, unless the
// server is a standby.
func (s *Source) connect(ctx context.Context) error {
	if s.conn != nil {
		return nil
	}
	whole := s.config.ConnectTimeout * time.Duration(2+len(s.config.Fallbacks)) // for each host and for LISTEN
	limited, cancel := context.WithTimeout(context.WithValue(ctx, connecting{}, true), whole)
	defer cancel()
	conn, err := pgconn.ConnectConfig(limited, s.config)
	if err != nil {
		return s.fail(ctx, "connect", err)
	}
	s.conn = conn
	if _, err = conn.Exec(limited, "LISTEN weir_rules").ReadAll(); err != nil && codeOf(err) != readOnly {
		return s.fail(ctx, "listen", err)
	}
	return nil
}

// await waits for a notification, at most for the poll interval.
func (s *Source) await(ctx context.Context) error {
	if !s.changed {
		limited, cancel := context.WithTimeout(ctx, s.poll)
		defer cancel()
		if err := s.conn.WaitForNotification(limited); err != nil && limited.Err() == nil {
			return s.fail(ctx, "wait", err)
		}
	}
	select {
	case <-ctx.Done():
	case <-time.After(time.Until(s.read.Add(pace))):
	}
	return ctx.Err()
}

// fail closes the connection, and returns the error to report: the error of ctx if ctx is done, and
// otherwise err.
func (s *Source) fail(ctx context.Context, doing string, err error) error {
	s.disconnect()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if codeOf(err) == noTable {
		err = fmt.Errorf("%w: create the table by executing pgrules.Schema", err)
	}
	if op := new(net.OpError); errors.As(err, &op) && op.Source != nil { // with the local port, equal errors would have different texts, and each would be logged
		err = errors.New(strings.ReplaceAll(err.Error(), op.Source.String()+"->", ""))
	}
	return fmt.Errorf("pgrules: %s: %w", doing, err)
}

// disconnect closes the connection. It waits for the goroutine with which the client may
// have begun to close a broken connection.
func (s *Source) disconnect() {
	if s.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = s.conn.Close(ctx)     // does nothing for a broken connection
	_ = s.conn.Conn().Close() // ends that goroutine
	<-s.conn.CleanupDone()
	s.conn = nil
}

// codeOf returns the code of an error of Postgres, or "".
func codeOf(err error) string {
	if refused := new(pgconn.PgError); errors.As(err, &refused) {
		return refused.Code
	}
	return ""
}
