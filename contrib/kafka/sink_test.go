package kafkaaudit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/audit"
	kafkaaudit "github.com/weir-go/weir/contrib/kafka"
)

const topic, partitions = "weir.audit", 4

// patience is how long an immediate event may take on a busy machine.
const patience = 20 * time.Second

func brokers(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(partitions, topic)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func sink(t *testing.T, c *kfake.Cluster, opts ...kgo.Opt) *kafkaaudit.Sink {
	t.Helper()
	opts = append([]kgo.Opt{kgo.MetadataMinAge(10 * time.Millisecond)}, opts...)
	s, err := kafkaaudit.New(kafkaaudit.Options{Brokers: c.ListenAddrs(), Topic: topic, Client: opts})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

func withTimeout(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// read waits for n records of the topic.
func read(t *testing.T, c *kfake.Cluster, n int) (all []*kgo.Record) {
	t.Helper()
	reader, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.ConsumeTopics(topic), kgo.FetchMaxWait(100*time.Millisecond))
	require.NoError(t, err)
	defer reader.Close()
	ctx := withTimeout(t, patience)
	for len(all) < n {
		fetches := reader.PollFetches(ctx)
		require.NoError(t, ctx.Err(), "%d of %d records came", len(all), n)
		fetches.EachRecord(func(r *kgo.Record) { all = append(all, r) })
	}
	return all
}

// batch returns a record for each of n keys. The argument first is the number of the first key.
func batch(n, first int) (b []audit.Record) {
	for i := range n {
		b = append(b, audit.Record{
			Time: time.UnixMilli(1_800_000_000_123).UTC(), Limit: "per user", ID: audit.ID{byte(first + i), byte((first + i) >> 8), 1}, Units: int64(first + i), Source: "owner",
		})
	}
	return b
}

func TestRecordIsJSONInPartitionOfItsID(t *testing.T) {
	c := brokers(t)
	log, err := audit.New(sink(t, c), audit.Options{Sample: 1})
	require.NoError(t, err)
	n, err := weir.Start(t.Context(), weir.Config{Name: "api-1", Observer: log})
	require.NoError(t, err)
	defer n.Close()
	l, err := n.Limiter(weir.Limit{Name: "per hour", Algorithm: weir.FixedWindow, Rate: 2, Per: time.Hour, Version: 7})
	require.NoError(t, err)
	const keys = 20
	for range 3 {
		for i := range keys {
			_, err := l.Allow(t.Context(), fmt.Sprint("user ", i))
			require.NoError(t, err)
		}
	}
	require.NoError(t, log.Close(withTimeout(t, patience)))
	require.Equal(t, audit.Stats{Written: 3 * keys}, log.Stats())

	got := read(t, c, 3*keys)
	at, used := make(map[string]int32), make(map[int32]bool)
	outcomes := make(map[string][]string)
	for _, r := range got {
		var decision audit.Record
		require.NoError(t, json.Unmarshal(r.Value, &decision))
		require.Equal(t, decision.ID.String(), string(r.Key))
		require.Equal(t, decision.Time.Truncate(time.Millisecond), r.Timestamp.UTC())
		require.EqualValues(t, 7, decision.Version)
		require.Equal(t, n.Members()[0].Name, decision.Node)
		headers := make(map[string]string)
		for _, h := range r.Headers {
			headers[h.Key] = string(h.Value)
		}
		outcome := map[bool]string{true: "allowed", false: "denied"}[decision.Allowed]
		require.Equal(t, map[string]string{"outcome": outcome, "limit": "per hour", "content-type": "application/json"}, headers)
		if p, is := at[string(r.Key)]; is {
			require.Equal(t, p, r.Partition)
		}
		at[string(r.Key)] = r.Partition
		used[r.Partition] = true
		outcomes[string(r.Key)] = append(outcomes[string(r.Key)], headers["outcome"])
	}
	require.Len(t, at, keys)
	require.Greater(t, len(used), 1)
	for key, in := range outcomes {
		require.Equal(t, []string{"allowed", "allowed", "denied"}, in, "of %s, which is not in order", key)
	}
}

// stored returns the number of records in the topic.
func stored(c *kfake.Cluster) (n int64) {
	for _, p := range c.PartitionInfos(topic) {
		n += p.HighWatermark
	}
	return n
}

// The connection breaks after the broker has received a request and before it responds.
// The client sends the request again, and the broker keeps a single copy.
func TestRetriedRecordIsWrittenOnce(t *testing.T) {
	c, way := brokers(t), new(network)
	s := sink(t, c, kgo.Dialer(way.dial))
	var requests atomic.Int64
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if requests.Add(1) == 1 {
			way.set(false)
		}
		return nil, nil, false
	})
	for _, b := range [][]audit.Record{batch(10, 0), batch(10, 10)} {
		kept, err := s.Write(withTimeout(t, patience), b)
		require.NoError(t, err)
		require.Equal(t, 10, kept)
	}
	require.Greater(t, requests.Load(), int64(2), "nothing was sent again")
	require.EqualValues(t, 20, stored(c))
}

// network is a connection to brokers that can be cut.
type network struct {
	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

func (n *network) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut {
		_ = conn.Close()
		return nil, errors.New("the network is cut")
	}
	n.conns = append(n.conns, conn)
	return conn, nil
}

// set breaks all connections. While the network is cut, new connections fail.
func (n *network) set(cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = cut
	for _, c := range n.conns {
		_ = c.Close()
	}
	n.conns = nil
}

// If the client kept the record, the record would arrive late, and would use buffer space until
// then.
func TestUnsentRecordIsAbandonedWithItsContext(t *testing.T) {
	c, way := brokers(t), new(network)
	s := sink(t, c, kgo.Dialer(way.dial))
	way.set(true)
	kept, err := s.Write(withTimeout(t, 100*time.Millisecond), batch(10, 0))
	require.Zero(t, kept)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	way.set(false)
	kept, err = s.Write(withTimeout(t, patience), batch(1, 10))
	require.NoError(t, err)
	require.Equal(t, 1, kept)
	require.EqualValues(t, 1, stored(c))
}

// The broker accepts requests and never responds. Requests that were sent to it cannot be
// withdrawn.
func TestHangingBrokerBlocksBatchUntilContextIsDone(t *testing.T) {
	c := brokers(t)
	// The buffer is small, so that a batch is buffered long before its context is done.
	s := sink(t, c, kgo.MaxBufferedRecords(80))
	kept, err := s.Write(withTimeout(t, patience), batch(3, 0))
	require.NoError(t, err)
	require.Equal(t, 3, kept)

	hung := make(chan struct{})
	var sent atomic.Bool
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		sent.Store(true)
		<-hung
		return nil, nil, false
	})
	write := func(i int, want error) {
		begun := time.Now()
		kept, err = s.Write(withTimeout(t, 200*time.Millisecond), batch(50, 50*i))
		require.Zero(t, kept)
		require.ErrorIs(t, err, want)
		require.Less(t, time.Since(begun), patience/4, "a batch waited for longer than its context")
	}
	// A batch that is not sent within its context leaves the client at once, and is sent
	// again here.
	for ctx := withTimeout(t, patience); !sent.Load(); {
		require.NoError(t, ctx.Err(), "the broker has no request")
		write(0, context.DeadlineExceeded)
	}
	for i := range 2 {
		write(1+i, kgo.ErrMaxBuffered) // the buffer of the client is full
	}
	close(hung)
	// Abandoned records leave the client, and then there is room again.
	for ctx := withTimeout(t, patience); ; {
		kept, err := s.Write(withTimeout(t, patience/4), batch(1, 0))
		if err == nil {
			require.Equal(t, 1, kept)
			return
		}
		require.NoError(t, ctx.Err(), "it does not go on: %v", err)
	}
}

func TestMissingTopicIsReported(t *testing.T) {
	c := brokers(t)
	s, err := kafkaaudit.New(kafkaaudit.Options{Brokers: c.ListenAddrs(), Topic: "other", Client: []kgo.Opt{
		kgo.UnknownTopicRetries(0), kgo.MetadataMinAge(10 * time.Millisecond),
	}})
	require.NoError(t, err)
	defer s.Close()
	kept, err := s.Write(withTimeout(t, patience), batch(3, 0))
	require.Zero(t, kept)
	require.ErrorIs(t, err, kerr.UnknownTopicOrPartition)
	require.ErrorContains(t, err, "kafkaaudit: 3 of 3 records were not acknowledged")
}

func TestInvalidOptionsAreReportedTogether(t *testing.T) {
	_, err := kafkaaudit.New(kafkaaudit.Options{})
	require.ErrorIs(t, err, weir.ErrInvalid)
	require.ErrorContains(t, err, "Brokers")
	require.ErrorContains(t, err, "Topic")
	_, err = kafkaaudit.New(kafkaaudit.Options{Brokers: []string{"localhost:1"}, Topic: "t", Client: []kgo.Opt{kgo.MaxBufferedRecords(-1)}})
	require.ErrorIs(t, err, weir.ErrInvalid)
	require.ErrorContains(t, err, "Client")
}

func TestBatchAboveBufferIsWritten(t *testing.T) {
	kept, err := sink(t, brokers(t)).Write(withTimeout(t, patience), batch(10_000, 0))
	require.NoError(t, err)
	require.Equal(t, 10_000, kept)
}
