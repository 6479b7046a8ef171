package kafkaaudit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/audit"
)

// Options say where a Sink writes to.
type Options struct {
	Brokers []string // "host:port" of some brokers, which name the others. Required
	Topic   string   // it has to be there, unless Client says kgo.AllowAutoTopicCreation. Required

	// Client are options of the client: kgo.DialTLSConfig, kgo.SASL, kgo.ClientID,
	// kgo.ProducerBatchCompression. They come after this package's own, and win over
	// them, but for kgo.ManualFlushing, which the Sink cannot do without.
	Client []kgo.Opt
}

// What the client keeps of records that were not acknowledged in time: those that were
// sent to a broker that fell silent, whose fate it does not know.
const (
	maxBufferedRecords = 8192
	maxBufferedBytes   = 16 << 20
)

// metadataMinAge is how long the client waits until it looks again for the leader of a
// partition that it has lost: its own 5 s would cost a queue of denials each time that a
// connection breaks.
const metadataMinAge = time.Second

// closeTimeout bounds how long Close waits for what is still buffered.
const closeTimeout = time.Second

// Sink is an audit.Sink that produces to a topic. It may serve several Logs.
type Sink struct {
	client *kgo.Client
	topic  string
}

// New returns a Sink, which connects when there is something to write: a broker that is
// away is no error here. The error is weir.ErrInvalid, and says what to change.
func New(o Options) (*Sink, error) {
	var errs []error
	if len(o.Brokers) == 0 {
		errs = append(errs, fmt.Errorf("%w kafkaaudit.Options: Brokers is empty: name one broker at least", weir.ErrInvalid))
	}
	if o.Topic == "" {
		errs = append(errs, fmt.Errorf("%w kafkaaudit.Options: Topic is empty: name the topic", weir.ErrInvalid))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(o.Brokers...),
		kgo.MaxBufferedRecords(maxBufferedRecords),
		kgo.MaxBufferedBytes(maxBufferedBytes),
		kgo.MetadataMinAge(metadataMinAge),
	}
	opts = append(opts, o.Client...)
	client, err := kgo.NewClient(append(opts, kgo.ManualFlushing())...)
	if err != nil {
		return nil, fmt.Errorf("%w kafkaaudit.Options: Client: %w", weir.ErrInvalid, err)
	}
	return &Sink{client, o.Topic}, nil
}

// Write produces a batch, and returns how many of it brokers have acknowledged when all
// are, or ctx is done. One that comes too late for that may be in Kafka all the same.
func (s *Sink) Write(ctx context.Context, batch []audit.Record) (kept int, err error) {
	records := make([]*kgo.Record, 0, len(batch))
	for i := range batch {
		r, wrong := record(s.topic, &batch[i])
		if wrong != nil {
			err = wrong
			continue
		}
		records = append(records, r)
	}
	for range tries {
		acknowledged, again, wrong := s.produce(ctx, records)
		kept += acknowledged
		if wrong != nil {
			err = wrong
		}
		if records = again; len(again) == 0 || ctx.Err() != nil {
			break
		}
	}
	if kept == len(batch) {
		return kept, nil
	}
	return kept, fmt.Errorf("kafkaaudit: %d of %d records were not acknowledged: %w", len(batch)-kept, len(batch), err)
}

// tries is how often a record is produced that failed by the context of another batch. The
// client fails all that it buffers for a partition together, when the context of the first
// is done; so what is left of a batch that was given up takes the next one with it, once.
const tries = 3

// produce waits until records have their answers, or ctx is done. It returns how many were
// acknowledged, which are to be produced again, and an error if one failed.
func (s *Sink) produce(ctx context.Context, records []*kgo.Record) (kept int, again []*kgo.Record, err error) {
	if len(records) == 0 {
		return 0, nil, nil
	}
	a := &answers{ctx: ctx, left: len(records), all: make(chan struct{})}
	for _, r := range records {
		s.client.Produce(ctx, r, a.answer) // flushing is manual, so that it waits for nothing
	}
	if err = s.client.Flush(ctx); err == nil {
		select { // those that the client refused have theirs a moment later
		case <-a.all:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.first != nil {
		err = a.first
	}
	return a.kept, a.again, err
}

// Close ends the client, for which it waits a second at most. Close the Logs before it.
func (s *Sink) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = s.client.Flush(ctx)
	s.client.Close()
}

// answers are those of one batch. Some may come when nobody waits for them any more.
type answers struct {
	ctx context.Context
	mu  sync.Mutex
	all chan struct{} // closed when none is left

	left  int // have no answer yet
	kept  int
	again []*kgo.Record // failed by a context that is not ctx
	first error         // the first that was no acknowledgement
}

func (a *answers) answer(r *kgo.Record, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err == nil:
		a.kept++
	case a.first == nil:
		a.first = err
	}
	if a.ctx.Err() == nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
		a.again = append(a.again, r)
	}
	if a.left--; a.left == 0 {
		close(a.all)
	}
}

// record is what Kafka keeps of a decision. The headers are for consumers that choose by them
// what to read.
func record(topic string, r *audit.Record) (*kgo.Record, error) {
	value, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	outcome := "denied"
	if r.Allowed {
		outcome = "allowed"
	}
	return &kgo.Record{
		Topic: topic, Key: []byte(r.ID.String()), Value: value, Timestamp: r.Time,
		Headers: []kgo.RecordHeader{
			{Key: "content-type", Value: []byte("application/json")},
			{Key: "limit", Value: []byte(r.Limit)},
			{Key: "outcome", Value: []byte(outcome)},
		},
	}, nil
}
