package rules

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// fakeSource delivers the texts and errors that a test sends.
type fakeSource struct{ next chan any }

func newFakeSource(first any) *fakeSource {
	s := &fakeSource{make(chan any, 10)}
	s.next <- first
	return s
}

func (s *fakeSource) Name() string { return "fake" }

func (s *fakeSource) Next(ctx context.Context, known string) (Text, error) {
	for {
		select {
		case <-ctx.Done():
			return Text{}, ctx.Err()
		case next := <-s.next:
			if err, failed := next.(error); failed {
				return Text{}, err
			}
			if text := next.(string); hashOf([]byte(text)) != known {
				return Text{"fake.yaml", []byte(text), hashOf([]byte(text))}, nil
			}
		}
	}
}

// openSource returns a Book of a source, and its log.
func openSource(t testing.TB, s Source, o BookOptions) (*Book, *journal) {
	log := new(journal)
	o.Logger = slog.New(slog.NewTextHandler(log, nil))
	b, err := OpenSource(t.Context(), startNode(t), s, o)
	require.NoError(t, err)
	t.Cleanup(func() { b.Close() })
	return b, log
}

func TestFailingSourceLeavesRulesInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSource(ratedFile(1, 10))
		b, log := openSource(t, s, BookOptions{})
		defer b.Close()
		require.EqualValues(t, 10, rateOf(b))

		for range 3 {
			s.next <- errors.New("down")
		}
		time.Sleep(10 * time.Second)
		require.Equal(t, 1, log.count("the rules were refused"))
		require.EqualError(t, b.Stats().LastError, "down")
		require.EqualValues(t, 10, rateOf(b))

		s.next <- ratedFile(1, 10)
		time.Sleep(time.Second)
		require.NoError(t, b.Stats().LastError, "the text in force is back")
		require.EqualValues(t, 1, b.Stats().Loads)

		s.next <- "rules: 5"
		time.Sleep(time.Second)
		require.ErrorContains(t, b.Stats().LastError, "fake.yaml:1:8: ")
		require.EqualValues(t, 1, b.Stats().Refused)
		require.EqualValues(t, 10, rateOf(b))

		s.next <- ratedFile(2, 20)
		time.Sleep(time.Second)
		require.NoError(t, b.Stats().LastError)
		require.EqualValues(t, 20, rateOf(b))
	})
}

func TestFirstErrorOfSourceIsReturned(t *testing.T) {
	n := startNode(t)
	failed := errors.New("down")
	_, err := OpenSource(t.Context(), n, newFakeSource(failed), BookOptions{})
	require.ErrorIs(t, err, failed)
	_, err = OpenSource(t.Context(), n, newFakeSource("rules: 5"), BookOptions{})
	require.ErrorContains(t, err, "fake.yaml:1:8: ")
	_, err = OpenSource(t.Context(), n, nil, BookOptions{})
	require.ErrorIs(t, err, weir.ErrInvalid)
	_, err = OpenSource(t.Context(), n, newFakeSource(failed), BookOptions{Poll: time.Second})
	require.ErrorContains(t, err, "only Open uses this field; set SourceOptions.Poll instead")
}

func TestTextWithoutVersionIsRefused(t *testing.T) {
	_, err := OpenSource(t.Context(), startNode(t), unversioned{}, BookOptions{})
	require.ErrorIs(t, err, errUnversioned)
}

type unversioned struct{}

func (unversioned) Name() string { return "unversioned" }
func (unversioned) Next(context.Context, string) (Text, error) {
	return Text{Bytes: []byte(ratedFile(1, 10))}, nil
}

func TestReplaceObeysVersions(t *testing.T) {
	b := staticBook(t, startNode(t), ratedFile(2, 10))
	require.NoError(t, b.Replace(mustParse(t, ratedFile(3, 20))))
	require.EqualValues(t, 20, rateOf(b))
	require.ErrorContains(t, b.Replace(mustParse(t, ratedFile(2, 30))), "version is 2, below 3")
	require.ErrorIs(t, b.Replace(nil), weir.ErrInvalid)
	require.EqualValues(t, 20, rateOf(b))
	require.EqualValues(t, 2, b.Stats().Loads)
}

func TestReplacedSetStaysUntilSourceChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSource(ratedFile(1, 10))
		b, _ := openSource(t, s, BookOptions{})
		defer b.Close()
		require.NoError(t, b.Replace(mustParse(t, ratedFile(1, 20))))
		s.next <- errors.New("down")
		s.next <- ratedFile(1, 10)
		time.Sleep(10 * time.Second)
		require.NoError(t, b.Stats().LastError)
		require.EqualValues(t, 20, rateOf(b), "the source has no new text")
		s.next <- ratedFile(1, 30)
		time.Sleep(time.Second)
		require.EqualValues(t, 30, rateOf(b))
	})
}

// Between the errors, the source returns the text that was refused.
func TestRefusedTextIsReadOnceAlthoughSourceFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSource(ratedFile(1, 10))
		b, _ := openSource(t, s, BookOptions{})
		defer b.Close()
		for range 5 {
			s.next <- "rules: 5"
			time.Sleep(10 * time.Second)
			require.ErrorContains(t, b.Stats().LastError, "fake.yaml:1:8: ")
			s.next <- errors.New("down")
			time.Sleep(10 * time.Second)
			require.EqualError(t, b.Stats().LastError, "down")
		}
		require.EqualValues(t, 1, b.Stats().Refused)
	})
}

// flapping is a source that returns its text, but fails if it should wait for a new text.
type flapping struct{ reads int }

func (*flapping) Name() string { return "flapping" }
func (s *flapping) Next(_ context.Context, known string) (Text, error) {
	if known != "" {
		return Text{}, errors.New("no watch")
	}
	s.reads++
	return Text{"fake.yaml", []byte(ratedFile(1, 10)), "1"}, nil
}

func TestSourceThatCannotWaitIsReadRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(flapping)
		b, log := openSource(t, s, BookOptions{})
		time.Sleep(time.Minute)
		require.NoError(t, b.Close())
		require.Less(t, s.reads, 30)
		require.Less(t, log.count("the rules were refused"), 30)
	})
}

// closable counts the calls of Close.
type closable struct {
	*fakeSource
	closed int
}

func (s *closable) Close() error {
	s.closed++
	return nil
}

func TestBookClosesItsSource(t *testing.T) {
	s := &closable{newFakeSource(ratedFile(1, 10)), 0}
	b, _ := openSource(t, s, BookOptions{})
	require.Zero(t, s.closed)
	require.NoError(t, b.Close())
	require.Equal(t, 1, s.closed)

	s = &closable{newFakeSource("rules: 5"), 0}
	_, err := OpenSource(t.Context(), startNode(t), s, BookOptions{})
	require.ErrorContains(t, err, "fake.yaml:1:8: ")
	require.Equal(t, 1, s.closed)

	done, cancel := context.WithCancel(t.Context())
	cancel()
	s = &closable{newFakeSource(ratedFile(1, 10)), 0}
	_, err = OpenSource(done, startNode(t), s, BookOptions{})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 1, s.closed)

	s = &closable{newFakeSource(ratedFile(1, 10)), 0}
	_, err = OpenSource(t.Context(), startNode(t), s, BookOptions{Poll: time.Second})
	require.ErrorIs(t, err, weir.ErrInvalid)
	require.Equal(t, 1, s.closed)
}
