package gossip

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/memberlist"

	"github.com/weir-go/weir/cluster/detect"
)

// handle has the default options of MessagePack, which never change. It caches how types are
// encoded, and is safe for concurrent use.
var handle = new(codec.MsgpackHandle)

// Encode encodes a struct of a wire format of package cluster. v must not have a field that
// MessagePack cannot represent.
func Encode(v any) []byte {
	var b []byte
	codec.NewEncoderBytes(&b, handle).MustEncode(v)
	return b
}

// Decode decodes bytes that may come from any sender.
func Decode(b []byte, v any) error {
	return codec.NewDecoderBytes(b, handle).Decode(v)
}

// version is the version of metadata and of messages with records.
const version = 1

// metadata is the information about a member that memberlist spreads beside its address.
type metadata struct {
	Version uint8        `codec:"v"`
	Addr    string       `codec:"a"`
	Region  string       `codec:"r"`
	Seed    []byte       `codec:"s"`
	Born    int64        `codec:"b"`
	Epoch   uint64       `codec:"e"`
	Turn    uint64       `codec:"n"`
	State   detect.State `codec:"t"`
}

func (m metadata) record(name string) detect.Record {
	return detect.Record{
		Name: name, Addr: m.Addr, Region: m.Region, Born: m.Born,
		Epoch: m.Epoch, Turn: m.Turn, Announced: m.State,
	}
}

var errMetadata = errors.New("cluster: the metadata of the member cannot be read")

func decodeMetadata(name string, b []byte) (metadata, error) {
	var m metadata
	if len(b) > memberlist.MetaMaxSize {
		return m, errMetadata
	}
	if err := Decode(b, &m); err != nil {
		return m, fmt.Errorf("%w: %w", errMetadata, err)
	}
	switch {
	case m.Version != version:
		return m, fmt.Errorf("cluster: the metadata of the member has version %d, and this node reads version %d", m.Version, version)
	case len(m.Seed) != 16 || !m.record(name).IsValid():
		return m, errMetadata
	}
	return m, nil
}

// rosterMessage contains records, in a push/pull, a broadcast or a message over a connection.
type rosterMessage struct {
	Version uint8        `codec:"v"`
	Records []wireRecord `codec:"r"`
}

// wireRecord is a record on the wire. Gone reports whether the record is a tombstone. Age is the time
// since detect.Record.Gone, because the clocks of members differ.
type wireRecord struct {
	Name   string        `codec:"n"`
	Addr   string        `codec:"a"`
	Region string        `codec:"r"`
	Born   int64         `codec:"b"`
	Epoch  uint64        `codec:"e"`
	Turn   uint64        `codec:"t"`
	State  detect.State  `codec:"s"`
	Gone   bool          `codec:"g"`
	Age    time.Duration `codec:"d"`
}

// EncodeRecords encodes records for other members.
func EncodeRecords(records []detect.Record, now time.Time) []byte {
	m := rosterMessage{Version: version, Records: make([]wireRecord, len(records))}
	for i, r := range records {
		w := wireRecord{
			Name: r.Name, Addr: r.Addr, Region: r.Region, Born: r.Born,
			Epoch: r.Epoch, Turn: r.Turn, State: r.Announced, Gone: r.IsGone(),
		}
		if w.Gone {
			w.Age = max(0, now.Sub(r.Gone))
		}
		m.Records[i] = w
	}
	return Encode(m)
}

// maxAge is the maximum age of a tombstone that another member reports. Config.Forget has no
// bound, and the present minus maxAge is a valid time.
const maxAge = 100 * 366 * 24 * time.Hour

// maxRecordBytes is the maximum number of bytes of encoded records.
const maxRecordBytes = 4 << 20

// DecodeRecords decodes records that may come from any sender.
func DecodeRecords(b []byte, now time.Time) ([]detect.Record, error) {
	if len(b) > maxRecordBytes {
		return nil, fmt.Errorf("the roster has %d bytes: the maximum is %d", len(b), maxRecordBytes)
	}
	// The claims are checked first: a record takes at least one byte in b, and 88 bytes once decoded.
	claims := remaining(b)
	if err := walk(&claims, maxField, 2*detect.MaxRecords, maxNesting); err != nil {
		return nil, fmt.Errorf("the roster cannot be read: %w", err)
	}
	var m rosterMessage
	if err := Decode(b, &m); err != nil {
		return nil, fmt.Errorf("the roster cannot be read: %w", err)
	}
	if m.Version != version {
		return nil, fmt.Errorf("the roster has version %d, and this member reads version %d", m.Version, version)
	}
	if len(m.Records) > detect.MaxRecords {
		return nil, fmt.Errorf("the roster has %d records: the maximum is %d", len(m.Records), detect.MaxRecords)
	}
	records := make([]detect.Record, len(m.Records))
	for i, w := range m.Records {
		r := detect.Record{
			Name: w.Name, Addr: w.Addr, Region: w.Region, Born: w.Born,
			Epoch: w.Epoch, Turn: w.Turn, Announced: w.State,
		}
		if w.Gone {
			r.Gone = now.Add(-min(w.Age, maxAge))
		}
		if !r.IsValid() || w.Age < 0 {
			return nil, fmt.Errorf("the roster is invalid: record %d is out of bounds", i)
		}
		records[i] = r
	}
	return records, nil
}
