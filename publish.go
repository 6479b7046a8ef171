package weir

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// Published is a small value that all nodes have.
type Published struct {
	Name    string
	Version uint64
	Value   []byte // not to be changed
}

// Publish gives all nodes a small value under a name: rules that change while
// running, an override for one key. Of two values of a name the one with the
// higher version holds on every node, and of the same version the one whose bytes
// are greater. A nil or empty value takes the name back. It returns when this node
// has the value; those that it hears have it a packet's way later, the others when
// they meet somebody who does, also after a split or a restart of all but one.
//
// Version 0 stands for one above what this node knows of the name, and at least the
// time of day in nanoseconds since 1970: the last writer wins. With an empty value it
// deletes what holds, whatever version that has. No node takes a version that is more than
// a day ahead of its own time of day: a member could leave a value of the highest version,
// and nothing would ever replace it.
//
// A name has 1 to 256 bytes, a value at most 4 KiB; there are at most 16,384
// values, with 8 MiB in all. What was taken back is remembered for a day: a node
// that was cut off for longer brings it back. Values do not expire.
//
// The error is ErrInvalid and names what is wrong, among that a version that is not
// above the one that holds or is too far ahead, and a value that there is no more room
// for; or it is ErrClosed. To publish again what holds is no error.
func (n *Node) Publish(name string, version uint64, value []byte) error {
	switch {
	case n.life.Ended():
		return ErrClosed
	case name == "" || len(name) > maxPublishedName:
		return fmt.Errorf("%w name: it has %d bytes: use 1 to %d", ErrInvalid, len(name), maxPublishedName)
	case len(value) > maxPublishedValue:
		return fmt.Errorf("%w value: %q has %d bytes: use at most %d", ErrInvalid, name, len(value), maxPublishedValue)
	}
	p := kvEntry{Published{name, version, slices.Clone(value)}, n.clock.Now()}
	news, err := n.kv.publish(p, n.clock.TimeOfDay(), n.clock.Now())
	if err == nil && len(news) > 0 {
		n.spread(n.view.Load(), news, -1)
	}
	return err
}

// publish is put of what a caller of this node says.
func (kv *kvStore) publish(p kvEntry, timeOfDay, now int64) (news []kvEntry, err error) {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	held, known := kv.all[p.Name]
	values, live := kv.values, kv.live
	if p.Version == 0 {
		p.Version = max(uint64(max(1, timeOfDay)), held.Version+1)
	}
	if latest := latestVersion(timeOfDay); !kv.takes(&p, latest) {
		return nil, fmt.Errorf("%w version: %d of %q is above %d, a day after the time of day in nanoseconds since 1970: use a lower one, or 0 for the next", ErrInvalid, p.Version, p.Name, latest)
	}
	if known {
		switch c := p.compare(&held); {
		case c == 0:
			return nil, nil
		case c < 0:
			return nil, fmt.Errorf("%w version: %d of %q is not above version %d, which holds: use a higher one, or 0 for the next", ErrInvalid, p.Version, p.Name, held.Version)
		}
	}
	if !p.tombstone() {
		if known && !held.tombstone() {
			values, live = values-1, live-held.size()
		}
		if values >= maxPublished || live+p.size() > maxPublishedBytes {
			return nil, fmt.Errorf("%w value: there is no room for %q beside %d values with %d bytes: take some back, there may be %d with %d", ErrInvalid, p.Name, values, live, maxPublished, maxPublishedBytes)
		}
	}
	return kv.merge([]kvEntry{p}, now), nil
}

// Published is the values whose names begin with prefix, sorted by name, and the
// revision of all values, which rises with each change that comes to this node:
// whoever polls need not look at the values while it stays. The slice and the
// values are shared, and must not be changed. What was taken back is not among
// them.
func (n *Node) Published(prefix string) (values []Published, revision uint64) {
	s := n.kv.current()
	return s.prefixed(prefix), s.revision
}

const (
	// compareEvery is how often a node compares what it has with the next one of
	// those that it hears: what was lost on its way is found then.
	compareEvery = 2 * time.Second
	// compareWait is how long a question about another's values may go unanswered.
	compareWait = time.Second
)

// spread tells the members that this node hears what is news, in one message: all
// of them, or those that the member it came from does not hear. More news than go
// into a message wait until stores are compared.
func (n *Node) spread(v *view.View, news []kvEntry, from int) {
	size := 0
	for i := range news {
		size += news[i].encodedSize()
	}
	if size > maxMessageEntryBytes {
		return
	}
	var body []byte
	for i, m := range v.Members {
		if i == v.Self || i == from || !v.Direct[i] || from >= 0 && v.Hears[from][i] {
			continue
		}
		if body == nil {
			body = appendEntries(nil, news, n.clock.Now())
		}
		m.Peer.Tell(append(wire.Header{Op: wire.OpPublish, To: v.Hashes[i]}.Append(nil), body...))
	}
}

// servePublished takes in what another node has published, or has come to know.
func (n *Node) servePublished(v *view.View, from string, body []byte, now int64) error {
	list, err := parseEntries(body, now)
	if err != nil {
		return err
	}
	if news := n.takePublished(list, from, now); len(news) > 0 {
		i, known := v.Named[view.NameHash(from)]
		if !known {
			i = -1
		}
		n.spread(v, news, i)
	}
	return nil
}

// tooFarAhead begins the line of the log about a version that is refused.
const tooFarAhead = "a published value is refused, as its version is too far ahead of this node's time of day"

// takePublished merges what another member knows, and returns what was news.
func (n *Node) takePublished(list []kvEntry, from string, now int64) []kvEntry {
	news, refused := n.kv.put(list, now, latestVersion(n.clock.TimeOfDay()))
	if refused != nil {
		if unlogged, due := n.farAhead.Due(time.Now()); due {
			n.cfg.Logger.Warn(tooFarAhead+": set the clock of the node that published it, and publish it again by version 0",
				"member", from, "name", refused.Name, "version", refused.Version, "unlogged", unlogged)
		}
	}
	return news
}

// serveComparison answers another node's question about what this one has, apart
// from checks: a store that has changed is sorted first.
func (n *Node) serveComparison(from env.Sender, body []byte, answer cluster.Later) {
	q, err := parseComparison(body)
	if err != nil {
		answer(nil)
		return
	}
	started := n.serveApart(from, func(context.Context) {
		d := n.kv.differs(&q, maxMessageEntryBytes)
		answer(d.append(wire.AppendAnswer(nil, wire.Done, 0), n.clock.Now()))
	})
	if !started {
		answer(wire.AppendAnswer(nil, wire.Unreached, 0))
	}
}

// keepPublished compares what this node has with what the others have, until the
// node closes: with everyone whom it begins to hear, and then with one after the
// other.
func (n *Node) keepPublished() {
	tick := time.NewTimer(compareEvery + n.view.Load().Offset(compareEvery))
	defer tick.Stop()
	met := make(map[countsync.Member]bool) // those that it hears, and has compared with
	next := 0
	for {
		due := false
		select {
		case <-n.newcomers:
		case <-tick.C:
			due = true
		case <-n.life.Done():
			return
		}
		// Where both are ready, both are taken, whichever was picked.
		select {
		case <-n.newcomers:
		default:
		}
		select {
		case <-tick.C:
			due = true
		default:
		}
		if due {
			tick.Reset(compareEvery)
			n.kv.sweep(n.clock.Now())
		}
		v := n.view.Load()
		var heard []int
		for i, m := range v.Hashes {
			if i == v.Self || !v.Direct[i] {
				delete(met, m)
				continue
			}
			heard = append(heard, i)
			if !met[m] {
				met[m] = n.compare(v, i) == nil
			}
		}
		if due && len(heard) > 0 {
			next++
			_ = n.compare(v, heard[next%len(heard)]) // it is asked again when its turn comes
		}
		for m := range met {
			if _, known := v.Named[m]; !known {
				delete(met, m)
			}
		}
	}
}

// compare takes over what another has and this node has not. The other
// does the same, as it hears this one.
func (n *Node) compare(v *view.View, with int) error {
	q := comparison{digests: n.kv.digestsNow()}
	for {
		request := q.append(wire.Header{Op: wire.OpCompare, To: v.Hashes[with]}.Append(nil))
		answer, err := v.Members[with].Peer.Ask(n.life.Context(), request, nil, compareWait)
		if err != nil {
			return err
		}
		switch s, err := wire.ParseAnswer(answer, 0); {
		case err != nil:
			return err
		case s == wire.Unreached:
			return env.ErrUnreached
		}
		now := n.clock.Now()
		d, err := parseDifference(answer[wire.AnswerHeaderBytes:], &q, now)
		if err != nil {
			return err
		}
		if news := n.takePublished(d.list, v.Members[with].Name, now); len(news) > 0 {
			n.spread(v, news, with)
		}
		if !d.more {
			return nil
		}
		q.after = d.list[len(d.list)-1].Name
	}
}
