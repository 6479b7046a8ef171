// Package sourcetest tests a source of rules with the real server from which the source reads. In
// the tests, the server is slow, or silent, or stops and starts again.
package sourcetest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/internal/testnode"
	"github.com/weir-go/weir/rules"
)

// Source is a source that a test closes.
type Source interface {
	rules.Source
	Close() error
}

// Store is a server that stores the text of the rules at one place, such as a key.
type Store struct {
	Addr string // address of the server

	// Open returns a Source that reads the text from the server at addr.
	Open func(t *testing.T, addr string, poll, timeout time.Duration) Source

	Put    func(t *testing.T, text string) // stores the text
	Delete func(t *testing.T)              // deletes the text
	Stop   func(t *testing.T)              // stops the server as a crash would
	Start  func(t *testing.T)              // starts the stopped server, and waits until it serves

	Password string // password with which the Sources connect
	Client   string // a part of the import path of the client, which the stacks of its goroutines contain
}

const (
	never  = time.Hour              // a poll interval without effect in a test
	soon   = 150 * time.Millisecond // a poll interval or timeout that passes in a test
	enough = 30 * time.Second       // a timeout that only a fault exceeds
)

// Run runs the tests. Each test begins with a running server.
func Run(t *testing.T, s Store) {
	t.Run("ChangesArrive", func(t *testing.T) { testChanges(t, s) })
	t.Run("ThreeNodesApplyChangeWithinSecond", func(t *testing.T) { testNodes(t, s) })
	t.Run("SlowServer", func(t *testing.T) { testSlow(t, s) })
	t.Run("SilentServer", func(t *testing.T) { testSilent(t, s) })
	t.Run("ServerIsDownAndBack", func(t *testing.T) { testDown(t, s) })
	t.Run("CloseLeavesNoGoroutine", func(t *testing.T) { testClose(t, s) })
}

// Text returns rules with a version.
func Text(version int) string {
	return fmt.Sprintf("version: %d\nrules:\n  - name: all\n    key: ip\n    limits: [{name: all, rate: 10, per: 1m}]\n", version)
}

// open opens a Source, and closes it when the test ends.
func (s Store) open(t *testing.T, addr string, poll, timeout time.Duration) Source {
	source := s.Open(t, addr, poll, timeout)
	t.Cleanup(func() { ensure(t, source.Close()) })
	expect(t, !strings.Contains(source.Name(), s.Password), "the name contains the password: %s", source.Name())
	return source
}

// RequireText returns the next text, which must have the given version.
func RequireText(t *testing.T, source rules.Source, known string, version int) rules.Text {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lab.GiveUp)
	defer cancel()
	text, err := source.Next(ctx, known)
	ensure(t, err)
	checkText(t, text, known, version)
	return text
}

// checkText requires that a Text of Next has the rules of the given version, and another version
// than known.
func checkText(t *testing.T, text rules.Text, known string, version int) {
	t.Helper()
	expect(t, string(text.Bytes) == Text(version), "the text is %q, not that of version %d", text.Bytes, version)
	expect(t, text.Name != "" && text.Version != "" && text.Version != known, "name %q, version %q after %q", text.Name, text.Version, known)
}

// NextDuring calls Next, and calls the function change as soon as Next waits.
func NextDuring(t *testing.T, source rules.Source, known string, change func()) (text rules.Text, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lab.GiveUp)
	defer cancel()
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		text, err = source.Next(ctx, known)
	}()
	awaitCall(t, "await")
	change()
	<-returned
	return text, err
}

// awaitCall waits until a goroutine executes a method of a Source.
func awaitCall(t *testing.T, method string) {
	t.Helper()
	lab.Eventually(t, "a goroutine executes "+method, func() bool { return runs(".(*Source)." + method + "(") })
}

// fails requires that Next fails within the given time, with an error that contains no password.
func (s Store) fails(t *testing.T, source rules.Source, known string, within time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lab.GiveUp)
	defer cancel()
	begun := time.Now()
	_, err := source.Next(ctx, known)
	expect(t, err != nil, "no error")
	expect(t, time.Since(begun) < within, "%v passed until %v", time.Since(begun), err)
	s.checkError(t, err)
	t.Logf("after %v: %v", time.Since(begun).Round(time.Millisecond), err)
	return err
}

// checkError requires that an error does not contain the password.
func (s Store) checkError(t *testing.T, err error) {
	t.Helper()
	expect(t, !strings.Contains(err.Error(), s.Password), "the error contains the password: %v", err)
}

func testChanges(t *testing.T, s Store) {
	source := s.open(t, s.Addr, never, enough)
	err := s.fails(t, source, "", enough)
	expect(t, errors.Is(err, fs.ErrNotExist), "the text is missing: %v", err)

	s.Put(t, Text(1))
	text := RequireText(t, source, "", 1)
	for version := 2; version <= 3; version++ {
		next, err := NextDuring(t, source, text.Version, func() { s.Put(t, Text(version)) })
		ensure(t, err)
		checkText(t, next, text.Version, version)
		text = next
	}

	ctx, cancel := context.WithTimeout(t.Context(), soon/3)
	defer cancel()
	_, err = source.Next(ctx, text.Version)
	expect(t, errors.Is(err, context.DeadlineExceeded), "Next ends with its context: %v", err)
	RequireText(t, source, "", 3)

	_, err = NextDuring(t, source, text.Version, func() { s.Delete(t) })
	expect(t, errors.Is(err, fs.ErrNotExist), "the text is deleted: %v", err)
	s.checkError(t, err)
	s.Put(t, Text(4))
	RequireText(t, source, "", 4)
}

func testNodes(t *testing.T, s Store) {
	s.Put(t, Text(1))
	var books []*rules.Book
	for _, n := range testnode.Fleet(t, 3, nil) {
		books = append(books, s.book(t, n, s.open(t, s.Addr, never, enough)))
	}
	var took []time.Duration
	for version := 2; version <= 6; version++ {
		begun := time.Now()
		s.Put(t, Text(version))
		for _, book := range books {
			awaitVersion(t, book, version)
		}
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	t.Logf("from the write to the third node, of %d changes: median %v, maximum %v", len(took), took[len(took)/2], took[len(took)-1])
	expect(t, took[len(took)/2] < time.Second, "changes arrive late: %v", took)
}

// book opens a Book, and closes it when the test ends.
func (s Store) book(t *testing.T, n *testnode.Node, source Source) *rules.Book {
	book, err := rules.OpenSource(t.Context(), n.Node, source, rules.BookOptions{Logger: slog.New(slog.DiscardHandler)})
	ensure(t, err)
	t.Cleanup(func() { ensure(t, book.Close()) })
	return book
}

func awaitVersion(t *testing.T, book *rules.Book, version int) {
	t.Helper()
	lab.Eventually(t, fmt.Sprint("the Book has version ", version), func() bool { return book.Stats().Version == uint64(version) })
}

func testSlow(t *testing.T, s Store) {
	s.Put(t, Text(1))
	proxy := lab.StartProxy(t, s.Addr)
	proxy.SetDelay(20 * time.Millisecond)
	source := s.open(t, proxy.Addr(), never, enough)
	text := RequireText(t, source, "", 1)
	s.Put(t, Text(2))
	RequireText(t, source, text.Version, 2)

	late := s.open(t, proxy.Addr(), soon, soon)
	proxy.SetDelay(2 * soon)
	s.fails(t, late, "", 20*soon)
	proxy.SetDelay(0)
	awaitText(t, late, 2)
}

// awaitText calls Next until it returns the text of the given version, like a Book.
func awaitText(t *testing.T, source rules.Source, version int) (text rules.Text) {
	t.Helper()
	lab.Eventually(t, "the source is read", func() bool {
		var err error
		text, err = source.Next(t.Context(), "")
		return err == nil && string(text.Bytes) == Text(version)
	})
	return text
}

// A silent server keeps the connection open and sends nothing. Only the poll detects that.
func testSilent(t *testing.T, s Store) {
	s.Put(t, Text(1))
	proxy := lab.StartProxy(t, s.Addr)
	source := s.open(t, proxy.Addr(), soon, soon)
	text := awaitText(t, source, 1) // on a busy machine, the first call may be late
	proxy.SetSilent(true)
	s.Put(t, Text(2))
	s.fails(t, source, text.Version, 20*soon)
	s.fails(t, source, "", 20*soon)
	proxy.SetSilent(false)
	awaitText(t, source, 2)
}

func testDown(t *testing.T, s Store) {
	s.Put(t, Text(1))
	n := testnode.Fleet(t, 1, nil)[0]
	book := s.book(t, n, s.open(t, s.Addr, soon, 4*soon))
	s.Stop(t)
	lab.Eventually(t, "the Book reports that the server is down", func() bool { return book.Stats().LastError != nil })
	expect(t, book.Stats().Version == 1, "the last rules stay in force")
	t.Log(book.Stats().LastError)
	s.Start(t)
	begun := time.Now()
	s.Put(t, Text(2))
	awaitVersion(t, book, 2)
	t.Logf("%v after the server was back", time.Since(begun).Round(time.Millisecond))
	expect(t, book.Stats().LastError == nil, "an error stays: %v", book.Stats().LastError)
}

func testClose(t *testing.T, s Store) {
	proxy := lab.StartProxy(t, s.Addr)
	n := testnode.Fleet(t, 1, nil)[0]
	for _, silent := range []bool{false, true} {
		s.Put(t, Text(1))
		book := s.book(t, n, s.open(t, proxy.Addr(), never, enough))
		if proxy.SetSilent(silent); silent {
			awaitCall(t, "Next")
		} else {
			awaitCall(t, "await")
		}
		ensure(t, book.Close())
		lab.Eventually(t, "no goroutine of the client is left by Close", func() bool { return !runs(s.Client) })
		proxy.SetSilent(false)

		s.Put(t, "rules: 5")
		_, err := rules.OpenSource(t.Context(), n.Node, s.open(t, proxy.Addr(), never, enough), rules.BookOptions{})
		expect(t, err != nil, "an invalid text has no error")
		lab.Eventually(t, "no goroutine of the client is left by an error", func() bool { return !runs(s.Client) })
	}
}

// runs reports whether the stack of a goroutine contains the given text, such as a package or a
// method.
func runs(path string) bool {
	stacks := make([]byte, 1<<20)
	return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), path)
}

func ensure(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, holds bool, format string, args ...any) {
	t.Helper()
	if !holds {
		t.Fatalf(format, args...)
	}
}
