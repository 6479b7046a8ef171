package cluster

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir/cluster/detect"
	"github.com/weir-go/weir/cluster/gossip"
)

// passPace is the minimum time between two calls of passOn. If hundreds of members start at the same
// time, this node may receive the same record from several members.
const passPace = 50 * time.Millisecond

// passing holds the records that this node passes on to the watched members, in a large cluster. Each
// record is new to the roster, so the number of records is at most that of the roster.
type passing struct {
	mu   sync.Mutex
	due  map[string]passedRecord // keyed by the name of the member that the record is about
	wake chan struct{}
}

// passedRecord is a record and the member that sent it to this node over a connection, if any.
type passedRecord struct {
	detect.Record
	from string
}

// add adds records that a member has sent, or gossip if from is empty. The latest record of a name is kept.
func (p *passing) add(from string, records ...detect.Record) {
	p.mu.Lock()
	if p.due == nil {
		p.due = make(map[string]passedRecord)
	}
	for _, r := range records {
		p.due[r.Name] = passedRecord{r, from}
	}
	p.mu.Unlock()
	signal(p.wake)
}

// takeAll removes all records and returns them.
func (p *passing) takeAll() []passedRecord {
	p.mu.Lock()
	defer p.mu.Unlock()
	records := slices.Collect(maps.Values(p.due))
	p.due = nil
	return records
}

// keepPassing passes records on until Close.
func (g *gossipCluster) keepPassing() {
	for {
		select {
		case <-g.ctx.Done():
			return
		case <-g.passing.wake:
		}
		g.peers.passOn(g.passing.takeAll())
		sleep(g.ctx, passPace)
	}
}

// passOn sends records to the watched members, but no record to its sender. The records for a member
// are queued one after the other, so that most of them are written together.
func (p *peers) passOn(records []passedRecord) {
	to := make(map[string]*session)
	p.mu.Lock()
	for _, l := range p.links {
		if s := l.session.Load(); s != nil && l.watched.Load() && !l.rests.Load() {
			to[l.name] = s
		}
	}
	p.mu.Unlock()
	now := time.Now()
	for _, r := range records {
		body := gossip.EncodeRecords([]detect.Record{r.Record}, now)
		for name, s := range to {
			if name != r.from {
				s.out.put(kindNews, 0, body)
			}
		}
	}
}
