package audit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/audit"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/internal/testnode"
	"github.com/weir-go/weir/weirtest"
)

// kept is a Sink that stores the records that it receives.
type kept struct {
	mu      sync.Mutex
	batches [][]audit.Record
	answer  func(ctx context.Context, batch []audit.Record) (int, error) // result of Write; if nil, all records are stored
}

func (k *kept) Write(ctx context.Context, batch []audit.Record) (n int, err error) {
	n = len(batch)
	if k.answer != nil {
		n, err = k.answer(ctx, batch)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.batches = append(k.batches, append([]audit.Record(nil), batch...))
	return n, err
}

func (k *kept) records() (all []audit.Record) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, b := range k.batches {
		all = append(all, b...)
	}
	return all
}

// newLog returns a Log, which the test must close.
func newLog(t *testing.T, sink audit.Sink, o audit.Options) *audit.Log {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	l, err := audit.New(sink, o)
	require.NoError(t, err)
	return l
}

// audited opens a Log for a node, and returns the Limiter of perHour.
func audited(t *testing.T, sink audit.Sink, o audit.Options) (*audit.Log, *weir.Limiter) {
	t.Helper()
	log := newLog(t, sink, o)
	return log, testnode.Limiter(t, testnode.Start(t, weir.Config{Observer: log}), perHour)
}

func allow(t *testing.T, l *weir.Limiter, key string, times int) {
	t.Helper()
	for range times {
		_, err := l.Allow(t.Context(), key)
		require.NoError(t, err)
	}
}

var perHour = weir.Limit{Name: "per hour", Algorithm: weir.FixedWindow, Rate: 2, Per: time.Hour, Version: 7}

func TestOnlyDenialsAreRecordedByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := new(kept)
		log := newLog(t, sink, audit.Options{})
		n := testnode.Start(t, weir.Config{Name: "api-1", Region: "eu", Observer: log})
		l := testnode.Limiter(t, n, perHour)
		allow(t, l, "user 1", 2)
		time.Sleep(time.Minute)
		begun := time.Now()
		allow(t, l, "user 1", 1)
		_, err := l.AllowN(t.Context(), "user 2", 2)
		require.NoError(t, err)
		require.NoError(t, log.Close(t.Context()))

		require.Equal(t, []audit.Record{{
			Time: begun.UTC(), Node: n.Members()[0].Name, Region: "eu", Limit: "per hour", Version: 7,
			ID: l.ID("user 1"), Units: 1, Source: "owner", RetryAfterMS: (59 * time.Minute).Milliseconds(),
			Operation: "take", Algorithm: "fixed_window", Rate: 2, Per: "1h", Capacity: 2, Used: 2, Decided: begun.UTC(),
		}}, sink.records())
		require.Equal(t, audit.Stats{Written: 1}, log.Stats())
	})
}

func TestRecordsHaveNameOfDepartedNode(t *testing.T) {
	sink := new(kept)
	log := newLog(t, sink, audit.Options{})
	n := testnode.Start(t, weir.Config{Region: "eu", Observer: log})
	l := testnode.Limiter(t, n, perHour)
	allow(t, l, "k", 1) // an admission is not recorded
	name := n.Members()[0].Name
	require.NoError(t, n.Leave(t.Context()))
	_, err := l.AllowN(t.Context(), "k", 3)
	require.Error(t, err)
	require.NoError(t, log.Close(t.Context()))
	require.Len(t, sink.records(), 1)
	require.Equal(t, name, sink.records()[0].Node)
	require.Equal(t, "eu", sink.records()[0].Region)
}

// Each denial is recorded by the node whose caller made the check, whichever node decided.
func TestAskedNodeRecordsDenialOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := new(kept)
		log := newLog(t, sink, audit.Options{Keys: true}) // shared by all nodes, which are in the same process
		c, err := weirtest.NewCluster(t.Context(), weirtest.Options{Config: weir.Config{Observer: log}})
		require.NoError(t, err)
		defer c.Close()
		type denial struct{ node, key string }
		want, sources := make(map[denial]int), make(map[string]bool)
		for _, host := range c.Names() {
			l := testnode.Limiter(t, c.Node(host), perHour)
			for i := range 10 {
				for range 3 {
					key := fmt.Sprint("user ", i)
					d, err := l.Allow(t.Context(), key)
					require.NoError(t, err)
					if !d.Allowed {
						want[denial{host, key}]++
						sources[d.Source.String()] = true
					}
				}
			}
		}
		require.NoError(t, log.Close(t.Context()))
		got, seen := make(map[denial]int), make(map[string]bool)
		for _, r := range sink.records() {
			host, _, _ := strings.Cut(r.Node, "-")
			got[denial{host, r.Key}]++
			seen[r.Source] = true
		}
		require.Equal(t, want, got)
		require.Equal(t, sources, seen)
		require.Subset(t, seen, map[string]bool{"owner": true, "forwarded": true, "pushback": true})
	})
}

func TestErrorsAndShadowsAreRecordedUnlikePeeks(t *testing.T) {
	sink := new(kept)
	log := newLog(t, sink, audit.Options{})
	n := testnode.Start(t, weir.Config{Observer: log})
	l, other := testnode.Limiter(t, n, perHour), testnode.Limiter(t, n, weir.Limit{Name: "other", Rate: 10, Per: time.Hour})
	allow(t, l, "k", 2)
	_, err := l.Peek(t.Context(), "k")
	require.NoError(t, err)
	_, err = l.AllowN(t.Context(), "k", 3)
	require.ErrorIs(t, err, weir.ErrInvalid)
	_, err = l.Allow(t.Context(), strings.Repeat("k", 2000))
	require.ErrorIs(t, err, weir.ErrInvalid)
	_, err = n.AllowAll(t.Context(), weir.Ask{Limiter: l, Key: "k", Shadow: true}, weir.Ask{Limiter: other, Key: "k"})
	require.NoError(t, err)
	_, err = n.AllowAll(t.Context(), weir.Ask{Limiter: l, Key: "k"}, weir.Ask{Limiter: other, Key: "k", Units: 4})
	require.NoError(t, err)
	require.NoError(t, log.Close(t.Context()))

	var got []string
	for _, r := range sink.records() {
		got = append(got, fmt.Sprintf("%s units=%d allowed=%v shadow=%v source=%s id=%v key=%q error=%q", r.Limit, r.Units, r.Allowed, r.Shadow, r.Source, r.ID == l.ID("k"), r.Key, r.Error))
	}
	require.Equal(t, []string{
		`per hour units=3 allowed=false shadow=false source=none id=true key="" error="weir: invalid units: 3 exceed the 2 that limit \"per hour\" can ever grant: ask for fewer at a time"`,
		`per hour units=1 allowed=false shadow=false source=none id=false key="" error="weir: invalid key: 2000 bytes exceed the limit of 1024; pass a hash instead"`,
		`per hour units=1 allowed=false shadow=true source=owner id=true key="" error=""`,
		`per hour units=1 allowed=false shadow=false source=owner id=true key="" error=""`,
	}, got)
}

func TestRecordTextsAreBounded(t *testing.T) {
	sink := new(kept)
	log := newLog(t, sink, audit.Options{Keys: true})
	l := testnode.Limiter(t, testnode.Start(t, weir.Config{Observer: log}), weir.Limit{Name: strings.Repeat("n", 255), Rate: 1, Per: time.Hour})
	for _, size := range []int{1024, 1025, 1 << 20} {
		_, err := l.AllowN(t.Context(), strings.Repeat("k", size), 2)
		require.ErrorIs(t, err, weir.ErrInvalid)
	}
	require.NoError(t, log.Close(t.Context()))
	records := sink.records()
	require.Len(t, records, 3)
	require.Len(t, records[0].Key, 1024)
	require.Len(t, records[0].Error, 256)
	for _, r := range records[1:] {
		require.Empty(t, r.Key)
		require.Zero(t, r.ID)
		require.Contains(t, r.Error, "invalid key")
	}
}

// For a key in the sample each decision is recorded, and for other keys each denial. All nodes
// have the same sample.
func TestNodesHaveSameSample(t *testing.T) {
	const keys = 1000
	seed := []byte("0123456789abcdef")
	sampled := func(o audit.Options) (allowed, denied map[audit.ID]int) {
		sink := new(kept)
		log := newLog(t, sink, o)
		l := testnode.Limiter(t, testnode.Start(t, weir.Config{Seed: seed, Observer: log}), perHour)
		for i := range keys {
			allow(t, l, fmt.Sprint("user ", i), 3)
		}
		require.NoError(t, log.Close(t.Context()))
		require.Equal(t, audit.Stats{Written: uint64(len(sink.records()))}, log.Stats())
		allowed, denied = make(map[audit.ID]int), make(map[audit.ID]int)
		for _, r := range sink.records() {
			if r.Allowed {
				allowed[r.ID]++
			} else {
				denied[r.ID]++
			}
		}
		for id, times := range allowed {
			require.Equal(t, 2, times)
			require.Equal(t, 1, denied[id])
		}
		return allowed, denied
	}

	some, denied := sampled(audit.Options{Sample: 0.25})
	require.InDelta(t, keys/4, len(some), keys/16)
	require.Len(t, denied, keys)
	here, _ := sampled(audit.Options{Sample: 0.25})
	require.Equal(t, some, here, "another node has another sample")
	more, _ := sampled(audit.Options{Sample: 0.5})
	for id := range some {
		require.Contains(t, more, id, "a larger sample lacks what a smaller one has")
	}
	only, denied := sampled(audit.Options{Sample: 0.25, SampledOnly: true})
	require.Equal(t, some, only)
	require.Len(t, denied, len(only))
	all, _ := sampled(audit.Options{Sample: 1, Queue: 4 * keys})
	require.Len(t, all, keys)
	none, denied := sampled(audit.Options{})
	require.Empty(t, none)
	require.Len(t, denied, keys)
}

func TestRecordHasTraceOfItsCheck(t *testing.T) {
	type span struct{}
	traced, sink := 0, new(kept)
	log, l := audited(t, sink, audit.Options{Trace: func(ctx context.Context) string {
		traced++
		id, _ := ctx.Value(span{}).(string)
		return id
	}})
	allow(t, l, "k", 3)
	for _, id := range []string{"4bf92f3577b34da6a3ce929d0e0e4736", strings.Repeat("x", 1000)} {
		_, err := l.Allow(context.WithValue(t.Context(), span{}, id), "k")
		require.NoError(t, err)
	}
	require.NoError(t, log.Close(t.Context()))
	records := sink.records()
	require.Len(t, records, 3)
	require.Equal(t, 3, traced, "of an admission nobody wants to know the trace")
	require.Empty(t, records[0].Trace)
	require.Equal(t, "4bf92f3577b34da6a3ce929d0e0e4736", records[1].Trace)
	require.Len(t, records[2].Trace, 128)
}

// In the synctest bubble, a check that waited for the Sink would wait forever.
func TestFullQueueDropsRecordsWithoutWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		sink := &kept{answer: func(_ context.Context, batch []audit.Record) (int, error) {
			<-free
			return len(batch), nil
		}}
		log, l := audited(t, sink, audit.Options{Queue: 16, Batch: 4})
		allow(t, l, "k", 2+1)
		time.Sleep(time.Second) // the Sink has received only the first record, and hangs
		synctest.Wait()
		begun := time.Now()
		allow(t, l, "k", 100)
		require.Zero(t, time.Since(begun))
		require.Equal(t, audit.Stats{Queued: 16, Dropped: 84}, log.Stats())

		close(free)
		synctest.Wait()
		require.Equal(t, audit.Stats{Written: 17, Dropped: 84}, log.Stats())
		allow(t, l, "k", 1)
		require.NoError(t, log.Close(t.Context()))
		require.Equal(t, audit.Stats{Written: 18, Dropped: 84}, log.Stats())
		require.Len(t, sink.records(), 18)
	})
}

func TestBatchIsWrittenWhenFullOrDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := new(kept)
		log, l := audited(t, sink, audit.Options{Batch: 4, Every: time.Minute})
		allow(t, l, "k", 2+3)
		synctest.Wait()
		require.Empty(t, sink.records())
		allow(t, l, "k", 1)
		synctest.Wait()
		require.Len(t, sink.records(), 4)
		allow(t, l, "k", 1)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, sink.records(), 5)
		require.Len(t, sink.batches, 2)
		allow(t, l, "k", 10)
		require.NoError(t, log.Close(t.Context()))
		for _, batch := range sink.batches {
			require.LessOrEqual(t, len(batch), 4)
		}
		require.Len(t, sink.records(), 15)
	})
}

func TestBrokenSinkFailsOnlyItsBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("no space left on device")
		answers := []func(context.Context) (int, error){
			func(context.Context) (int, error) { return 0, broken },
			func(context.Context) (int, error) { return 3, broken },
			func(context.Context) (int, error) { return 9, broken }, // more than the batch has
			func(context.Context) (int, error) { return -1, broken },
			func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() },
			func(context.Context) (int, error) { return 0, nil }, // without an error, all records count as stored
		}
		var said lab.Text
		calls := 0
		sink := &kept{answer: func(ctx context.Context, _ []audit.Record) (int, error) { calls++; return answers[calls-1](ctx) }}
		log, l := audited(t, sink, audit.Options{Batch: 4, Timeout: time.Second, Logger: slog.New(slog.NewTextHandler(&said, nil))})
		allow(t, l, "k", 2)
		for _, want := range []audit.Stats{
			{Failed: 4}, {Failed: 5, Written: 3}, {Failed: 5, Written: 7}, {Failed: 9, Written: 7}, {Failed: 13, Written: 7}, {Failed: 13, Written: 11},
		} {
			allow(t, l, "k", 4)
			time.Sleep(time.Second)
			synctest.Wait()
			require.Equal(t, want, log.Stats())
		}
		require.Equal(t, 1, strings.Count(said.String(), "\n"), "more than one line in a minute: %s", &said)
		require.Contains(t, said.String(), `level=WARN msg="audit records were lost" dropped=0 failed=4 error="no space left on device"`)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Contains(t, said.String(), `dropped=0 failed=9 error="context deadline exceeded"`)
		require.NoError(t, log.Close(t.Context()))
		require.Equal(t, len(answers), calls, "a batch was written again")
		require.Equal(t, 2, strings.Count(said.String(), "\n"), "nothing new was lost: %s", &said)
	})
}

func TestCloseWritesQueueAndDropsLaterRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := new(kept)
		log, l := audited(t, sink, audit.Options{Queue: 1000, Batch: 7, Every: time.Hour})
		allow(t, l, "k", 2+20)
		require.NoError(t, log.Close(t.Context()))
		require.Len(t, sink.records(), 20)
		allow(t, l, "k", 3)
		require.Equal(t, audit.Stats{Written: 20, Dropped: 3}, log.Stats())
		require.NoError(t, log.Close(t.Context()))
	})
}

func TestCloseReturnsWithContextIfSinkHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, heeds := range []bool{true, false} {
			free := make(chan struct{})
			sink := &kept{answer: func(ctx context.Context, _ []audit.Record) (int, error) {
				if !heeds {
					<-free
				}
				<-ctx.Done()
				return 0, ctx.Err()
			}}
			var said lab.Text
			log, l := audited(t, sink, audit.Options{Batch: 4, Timeout: time.Hour, Logger: slog.New(slog.NewTextHandler(&said, nil))})
			allow(t, l, "k", 2+10)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			begun := time.Now()
			err := log.Close(ctx)
			cancel()
			require.Equal(t, time.Minute, time.Since(begun))
			if err != nil || !heeds { // a Sink that respects its context may have returned
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
			close(free)
			require.NoError(t, log.Close(t.Context()), "its goroutine has not ended")
			require.Equal(t, audit.Stats{Failed: 4, Dropped: 6}, log.Stats())
			require.Contains(t, said.String(), "dropped=6 failed=0")
		}
	})
}

// Each decision is counted as written, dropped or failed, and each written record occurs once.
func TestConcurrentDenialsAreWrittenOnceOrCounted(t *testing.T) {
	const askers, each = 8, 500
	for _, queue := range []int{1, 7, 64, askers * each} {
		t.Run(fmt.Sprint(queue), func(t *testing.T) {
			sink := &kept{answer: func(_ context.Context, batch []audit.Record) (int, error) {
				if batch[0].ID[0]%8 == 0 {
					return len(batch) / 2, io.ErrClosedPipe
				}
				return len(batch), nil
			}}
			log, l := audited(t, sink, audit.Options{Queue: queue, Keys: true, Every: time.Millisecond})
			var wait sync.WaitGroup
			for a := range askers {
				wait.Go(func() {
					for i := range each {
						_, _ = l.AllowN(t.Context(), fmt.Sprint(a, " ", i), 3) // more units than the limit can grant
					}
				})
			}
			wait.Wait()
			require.NoError(t, log.Close(t.Context()))
			records, s := sink.records(), log.Stats()
			seen := make(map[string]bool)
			for _, r := range records {
				require.Equal(t, audit.ID(l.ID(r.Key)), r.ID, "the record of %q is a mixture", r.Key)
				require.False(t, seen[r.Key], "%q was recorded twice", r.Key)
				seen[r.Key] = true
			}
			require.EqualValues(t, askers*each, s.Written+s.Dropped+s.Failed)
			require.EqualValues(t, len(records), s.Written+s.Failed)
			require.Zero(t, s.Queued)
			if queue == askers*each {
				require.Zero(t, s.Dropped)
			}
		})
	}
}

func TestRecordedCheckDoesNotAllocate(t *testing.T) {
	for _, o := range []audit.Options{{}, {Keys: true}, {Sample: 1}, {Sample: 0.5}} {
		synctest.Test(t, func(t *testing.T) {
			o.Every = time.Hour
			o.Queue, o.Batch = 128, 64
			sink := new(kept)
			log, l := audited(t, sink, o)
			allow(t, l, "203.0.113.7", 2)
			for range 4 { // fill the queue twice, so that the texts have their capacity
				allow(t, l, "203.0.113.7", o.Batch)
				synctest.Wait() // the writer may allocate here, but not below
			}
			ctx := t.Context()
			require.Zero(t, testing.AllocsPerRun(50, func() { _, _ = l.Allow(ctx, "203.0.113.7") }), "%+v", o)
			require.Zero(t, log.Stats().Dropped)
			require.NoError(t, log.Close(t.Context()))
		})
	}
}

func TestValidateReturnsAllErrors(t *testing.T) {
	require.NoError(t, audit.Options{}.Validate())
	err := audit.Options{Sample: -1, Queue: -1, Batch: -1, Every: time.Nanosecond, Timeout: -time.Second}.Validate()
	require.ErrorIs(t, err, weir.ErrInvalid)
	for _, field := range []string{"Sample", "Queue", "Batch", "Every", "Timeout"} {
		require.ErrorContains(t, err, "weir: invalid audit.Options: "+field)
	}
	require.ErrorContains(t, audit.Options{Queue: 10, Batch: 11}.Validate(), "Batch is 11: use 1 to the Queue's 10, or 0 for 10")
	require.ErrorContains(t, audit.Options{SampledOnly: true}.Validate(), "SampledOnly")
	require.NoError(t, audit.Options{Queue: 10}.Validate())
	_, err = audit.New(nil, audit.Options{})
	require.ErrorIs(t, err, weir.ErrInvalid)
	_, err = audit.New(new(kept), audit.Options{Sample: 2})
	require.ErrorIs(t, err, weir.ErrInvalid)
}
