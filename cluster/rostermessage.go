package cluster

import (
	"fmt"
	"time"

	"github.com/weir-go/weir/cluster/detect"
)

// rosterMessage carries records, in a push/pull or as a broadcast.
type rosterMessage struct {
	Version uint8        `codec:"v"`
	Records []wireRecord `codec:"r"`
}

// wireRecord is a record with its time of burial as an age, for clocks differ.
type wireRecord struct {
	Name   string        `codec:"n"`
	Addr   string        `codec:"a"`
	Region string        `codec:"r"`
	Born   int64         `codec:"b"`
	Epoch  uint64        `codec:"e"`
	Turn   uint64        `codec:"t"`
	State  State         `codec:"s"`
	Gone   bool          `codec:"g"`
	Age    time.Duration `codec:"d"`
}

func encodeRecords(records []detect.Record, now time.Time) []byte {
	m := rosterMessage{Version: membershipVersion, Records: make([]wireRecord, len(records))}
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
	return encode(m)
}

// maxAge bounds how long ago a member was buried, by the word of another: Config.Forget
// may be as long as its user likes, and a time less this age is one.
const maxAge = 100 * 366 * 24 * time.Hour

// maxRosterMessage bounds the bytes of a roster message.
const maxRosterMessage = 4 << 20

func decodeRecords(b []byte, now time.Time) ([]detect.Record, error) {
	if len(b) > maxRosterMessage {
		return nil, fmt.Errorf("a roster of %d bytes: the bound is %d", len(b), maxRosterMessage)
	}
	// What it claims is looked at first: a record takes a byte there at the least, and 144 here.
	claims := remaining(b)
	if err := walk(&claims, maxField, 2*detect.MaxRecords, maxNesting); err != nil {
		return nil, fmt.Errorf("a roster that cannot be read: %w", err)
	}
	var m rosterMessage
	if err := decode(b, &m); err != nil {
		return nil, fmt.Errorf("a roster that cannot be read: %w", err)
	}
	if m.Version != membershipVersion {
		return nil, fmt.Errorf("a roster of version %d, this member's is %d", m.Version, membershipVersion)
	}
	if len(m.Records) > detect.MaxRecords {
		return nil, fmt.Errorf("a roster of %d records: the bound is %d", len(m.Records), detect.MaxRecords)
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
			return nil, fmt.Errorf("a roster whose record %d is out of bounds", i)
		}
		records[i] = r
	}
	return records, nil
}
