//go:build unix

package pgrules_test

import (
	"context"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/contrib/internal/sourcetest"
	pgrules "github.com/weir-go/weir/contrib/postgres"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/internal/testenv"
)

// The tests share a server, because it takes a second to create one.
func TestSourceReadsPostgres(t *testing.T) {
	s := start(t)
	sourcetest.Run(t, sourcetest.Store{
		Addr: s.Addr,
		Open: func(t *testing.T, addr string, poll, timeout time.Duration) sourcetest.Source {
			return open(t, addr, poll, timeout)
		},
		Put: s.put, Delete: s.remove, Stop: s.end, Start: s.begin,
		Password: password,
		Client:   "jackc/pgx",
	})
	t.Run("PollFindsChangeWithoutNotification", func(t *testing.T) { testPoll(t, s) })
	t.Run("BrokenConnectionIsReplaced", func(t *testing.T) { testBroken(t, s) })
	t.Run("OtherRowsWakeNoCaller", func(t *testing.T) { testOtherRows(t, s) })
	t.Run("MissingTableNamesSchema", func(t *testing.T) { testMissingTable(t, s) })
	t.Run("SchemaCanBeExecutedAgain", func(t *testing.T) { testSchema(t, s) })
}

func testPoll(t *testing.T, s *server) {
	s.put(t, sourcetest.Text(1))
	source := open(t, s.Addr, 50*time.Millisecond, lab.GiveUp)
	text := sourcetest.RequireText(t, source, "", 1)
	s.exec(t, "ALTER TABLE weir_rules DISABLE TRIGGER weir_rules_notify")
	s.put(t, sourcetest.Text(2))
	sourcetest.RequireText(t, source, text.Version, 2)
	s.exec(t, "ALTER TABLE weir_rules ENABLE TRIGGER weir_rules_notify")
}

func testBroken(t *testing.T, s *server) {
	s.put(t, sourcetest.Text(1))
	source := open(t, s.Addr, time.Hour, lab.GiveUp)
	text := sourcetest.RequireText(t, source, "", 1)
	_, err := sourcetest.NextDuring(t, source, text.Version, func() {
		s.exec(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'weir'")
	})
	require.ErrorContains(t, err, "terminating connection")
	s.put(t, sourcetest.Text(2))
	sourcetest.RequireText(t, source, text.Version, 2)
}

func testOtherRows(t *testing.T, s *server) {
	s.put(t, sourcetest.Text(1))
	source := open(t, s.Addr, time.Hour, lab.GiveUp)
	text := sourcetest.RequireText(t, source, "", 1)
	for range 3 {
		s.exec(t, "INSERT INTO weir_rules (name, text) VALUES ($1, 'a') ON CONFLICT (name) DO UPDATE SET text = EXCLUDED.text || 'b'", "other")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := source.Next(ctx, text.Version)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func testMissingTable(t *testing.T, s *server) {
	s.put(t, sourcetest.Text(1))
	s.exec(t, "ALTER TABLE weir_rules RENAME TO moved")
	source := open(t, s.Addr, time.Hour, lab.GiveUp)
	_, err := source.Next(t.Context(), "")
	require.ErrorContains(t, err, `relation "weir_rules" does not exist`)
	require.ErrorContains(t, err, "pgrules.Schema")
	require.NotErrorIs(t, err, fs.ErrNotExist)
	s.exec(t, "ALTER TABLE moved RENAME TO weir_rules")
	sourcetest.RequireText(t, source, "", 1)
}

func testSchema(t *testing.T, s *server) {
	s.put(t, sourcetest.Text(1))
	source := open(t, s.Addr, time.Hour, lab.GiveUp)
	first := sourcetest.RequireText(t, source, "", 1)
	s.exec(t, pgrules.Schema)
	s.put(t, sourcetest.Text(2))
	second := sourcetest.RequireText(t, source, first.Version, 2)
	require.NotEqual(t, strings.Split(first.Version, "-")[0], strings.Split(second.Version, "-")[0], "the revision rises")

	// An older revision has another version, as after a restored backup.
	s.exec(t, "DELETE FROM weir_rules WHERE name = $1", row)
	s.put(t, sourcetest.Text(3))
	sourcetest.RequireText(t, source, second.Version, 3)

	err := s.try("UPDATE weir_rules SET text = repeat('x', $1::int) WHERE true", "1048577")
	require.ErrorContains(t, err, "violates check constraint")
}

// A standby refuses LISTEN.
func TestSourceReadsStandby(t *testing.T) {
	testenv.SkipUnlessFull(t, "TestSourceReadsPostgres")
	s := start(t)
	s.put(t, sourcetest.Text(1))
	source := open(t, s.standby(t).Addr, 50*time.Millisecond, lab.GiveUp)
	text := sourcetest.RequireText(t, source, "", 1)
	s.put(t, sourcetest.Text(2))
	sourcetest.RequireText(t, source, text.Version, 2)
}
