package cluster

import (
	"sync"
	"time"

	"github.com/weir-go/weir/cluster/detect"
	"github.com/weir-go/weir/cluster/gossip"
)

const (
	// passPace is the minimum time between two calls of passOn. If hundreds of members start at the same
	// time, this node may receive the same record from several members. In a cluster of more than 250 members,
	// the pace is that of refreshes, because records then arrive all the time for a second or more.
	passPace = 50 * time.Millisecond
	// freshTime is how long a record is fresh after it was new to the roster. It is longer than the time from the
	// first exchange of rosters of a node that starts to its first connections.
	freshTime = 3 * time.Second
)

// passing holds the records that this node passes on in a large cluster. It sends a record at once to the watched
// members. While the record is fresh, it also sends the record with the first rows over a connection. Otherwise a
// record would miss the members that have exchanged rosters just before it arrived, and connect just after this:
// when 300 members started in the same instant, 6 of them lacked a member for two seconds. Each record is new to
// the roster, so the number of records is at most that of the roster.
type passing struct {
	mu    sync.Mutex
	fresh map[string]passedRecord // keyed by the name of the member that the record is about
	due   map[string]bool         // the names of the records that have not been passed on
	wake  chan struct{}
}

// passedRecord is a record about a member, and the member that sent it to this node over a connection, if any.
type passedRecord struct {
	about, from string
	isGone      bool
	body        func() []byte // encodes the record in its first call, which must not hold a lock
	at          time.Time     // when it was new to the roster
}

// isFor reports whether the record is passed on to a member: a member knows its own record, but not its tombstone.
func (r *passedRecord) isFor(to string) bool { return r.from != to && (r.about != to || r.isGone) }

// add adds records that a member has sent, or gossip if from is empty. The latest record of a name is kept.
func (p *passing) add(from string, now time.Time, records ...detect.Record) {
	p.mu.Lock()
	if p.fresh == nil {
		p.fresh, p.due = make(map[string]passedRecord), make(map[string]bool)
	}
	for _, r := range records {
		body := sync.OnceValue(func() []byte { return gossip.EncodeRecords([]detect.Record{r}, now) })
		p.fresh[r.Name], p.due[r.Name] = passedRecord{r.Name, from, r.IsGone(), body, now}, true
	}
	p.mu.Unlock()
	signal(p.wake)
}

// takeDue returns the records that are due, removes the records that are not fresh any more, and reports whether
// there are others.
func (p *passing) takeDue(now time.Time) (records []passedRecord, more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, r := range p.fresh {
		if p.due[name] {
			records = append(records, r)
		} else if now.Sub(r.at) >= freshTime {
			delete(p.fresh, name)
		}
	}
	if more = len(p.fresh) > 0; !more {
		p.fresh, p.due = nil, nil
	}
	clear(p.due)
	return records, more
}

// freshRecords returns the encoded fresh records for a member.
func (p *passing) freshRecords(to string) (bodies [][]byte) {
	for _, r := range p.recordsFor(to, time.Now()) {
		bodies = append(bodies, r.body())
	}
	return bodies
}

func (p *passing) recordsFor(to string, now time.Time) (records []passedRecord) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.fresh {
		if r.isFor(to) && now.Sub(r.at) < freshTime {
			records = append(records, r)
		}
	}
	return records
}

// keepPassing passes records on until Close.
func (g *gossipCluster) keepPassing() {
	var expired <-chan time.Time
	for {
		select {
		case <-g.ctx.Done():
			return
		case <-g.passing.wake:
		case <-expired:
		}
		records, more := g.passing.takeDue(time.Now())
		if expired = nil; more {
			expired = time.After(freshTime)
		}
		if len(records) > 0 {
			g.peers.passOn(records)
			sleep(g.ctx, max(passPace, time.Duration(g.size())*refreshPace))
		}
	}
}

// passOn sends records to the watched members. The records for a member are queued one after the other, so that
// most of them are written together.
func (p *peers) passOn(records []passedRecord) {
	to := make(map[string]*session)
	p.mu.Lock()
	for l := range p.watched {
		if s := l.session.Load(); s != nil {
			to[l.name] = s
		}
	}
	p.mu.Unlock()
	for _, r := range records {
		for name, s := range to {
			if r.isFor(name) {
				s.out.put(kindNews, 0, r.body())
			}
		}
	}
}

// sendFreshRecords sends the fresh records to the member.
func (u *upkeep) sendFreshRecords() {
	if u.peers.cfg.FreshRecords == nil {
		return
	}
	for _, body := range u.peers.cfg.FreshRecords(u.name) {
		u.s.out.put(kindNews, 0, body)
	}
}
