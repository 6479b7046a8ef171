package kafkaaudit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/audit"
)

// Options configure the destination of a Sink.
type Options struct {
	Brokers []string // "host:port" of at least one broker, which knows the cluster. Required
	Topic   string   // must exist, unless Client contains kgo.AllowAutoTopicCreation. Required

	// Client contains options of the client, such as kgo.DialTLSConfig, kgo.SASL,
	// kgo.ClientID and kgo.ProducerBatchCompression. They override the options of this
	// package, except for kgo.ManualFlushing, which the Sink requires.
	Client []kgo.Opt
}

// Bounds of the records in the client: those of the present batch, of which Write produces at most half
// of maxBufferedRecords at once because the client refuses more, and those that the client keeps
// after Write has returned without an acknowledgement of them. The latter were sent to a broker that
// stopped responding, and the client does not know whether the broker has stored them.
const (
	maxBufferedRecords = 8192
	maxBufferedBytes   = 16 << 20
)

// metadataMinAge is the minimum time between two requests of the client for the leaders of
// partitions. With the default of 5 s, the queue of a Log could fill after each broken
// connection, and records would be dropped.
const metadataMinAge = time.Second

// closeTimeout bounds how long Close waits for buffered records.
const closeTimeout = time.Second

// Sink is an audit.Sink that produces to a topic. Several Logs may share it.
type Sink struct {
	client *kgo.Client
	topic  string
}

// New returns a Sink. The Sink connects when there is a record to write, so an
// unavailable broker is not an error here. The error is weir.ErrInvalid, and names the
// remedy.
func New(o Options) (*Sink, error) {
	var errs []error
	if len(o.Brokers) == 0 {
		errs = append(errs, fmt.Errorf("%w kafkaaudit.Options: Brokers is empty: name at least one broker", weir.ErrInvalid))
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

// Write produces a batch, and returns the number of records that brokers have
// acknowledged. Write returns when each record is acknowledged or has failed, or when ctx is
// done. A record that is not acknowledged by then may be in Kafka nevertheless.
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
	for part := range slices.Chunk(records, maxBufferedRecords/2) {
		for range tries {
			acknowledged, again, wrong := s.produce(ctx, part)
			kept += acknowledged
			if wrong != nil {
				err = wrong
			}
			if part = again; len(again) == 0 || ctx.Err() != nil {
				break
			}
		}
	}
	if kept == len(batch) {
		return kept, nil
	}
	return kept, fmt.Errorf("kafkaaudit: %d of %d records were not acknowledged: %w", len(batch)-kept, len(batch), err)
}

// tries bounds the attempts to produce a record. When the context of the first buffered
// record of a partition is done, the client fails all buffered records of that partition,
// including records of another batch. So the rest of an abandoned batch can fail the next
// batch, once.
const tries = 3

// produce sends records, and waits for their results until ctx is done. It returns the
// number of acknowledged records, the records that must be sent again, and an error if a
// record failed.
func (s *Sink) produce(ctx context.Context, records []*kgo.Record) (kept int, again []*kgo.Record, err error) {
	if len(records) == 0 {
		return 0, nil, nil
	}
	a := &answers{ctx: ctx, left: len(records), all: make(chan struct{})}
	for _, r := range records {
		s.client.Produce(ctx, r, a.answer) // flushing is manual, so that Produce does not wait
	}
	if err = s.client.Flush(ctx); err == nil {
		select { // the results of records that the client refused arrive slightly later
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

// Close waits at most a second for buffered records, and then closes the client. Close
// the Logs first.
func (s *Sink) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = s.client.Flush(ctx)
	s.client.Close()
}

// answers contains the results of the records of one call of produce. Results may arrive
// after produce has returned.
type answers struct {
	ctx context.Context
	mu  sync.Mutex
	all chan struct{} // closed when each record has a result

	left  int           // number of records without a result
	kept  int           // number of acknowledged records
	again []*kgo.Record // records that failed because of a context other than ctx
	first error         // the first error
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

// record returns the Kafka record of an audit record. A consumer can select records by their
// headers, without parsing the values.
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
