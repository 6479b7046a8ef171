package weir

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/topkeys"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

const (
	// topHalfLife is in what time an ask comes to count half.
	topHalfLife = time.Minute
	// maxTop bounds the keys of one list, in an answer and of Node.TopKeys.
	maxTop = 100
	// topBytes bounds a member's answer; of longer keys there are fewer.
	topBytes = 48 << 10
	// topWait is how long a member may take to answer.
	topWait = time.Second
	// topAsked is how many members are asked at once.
	topAsked = 16
	// maxCount bounds what a member says of one key, so that what all say can be added up.
	maxCount = 1 << 48
)

// TopKeys are the keys that are asked for most, and denied most, in the whole cluster.
type TopKeys struct {
	Asked, Denied []TopKey // the most first
	Missing       []string // names of members that did not answer: what they were asked for is not in it
	Silent        []string // names of members that tell nothing, as their Config.TopKeys is -1
}

// TopKey is a key of one limit, and how often it was asked for and denied lately: nodes
// halve all counts once a minute, so that of steady traffic they have what came in one to
// two minutes. Counts are no less than the truth, and too high by their Over at most, as
// far as the measured checks stand for all: each of the first few, and later one in 64.
type TopKey struct {
	Limit string
	ID    [16]byte // as Limiter.ID gives it
	Key   string   // as callers gave it; empty if Known is false
	// Known reports whether Key is known: the nodes that were asked keep it, and tell it
	// to members over authenticated connections alone.
	Known                bool
	Asks, AsksOver       uint64
	Denials, DenialsOver uint64
}

// TopKeyStats says how Node.TopKeys fares on this node alone.
type TopKeyStats struct {
	Asked, Denied int    // keys that are remembered
	Dropped       uint64 // asks that were not counted there, as another was being counted. It only grows
}

// topKeys is what this node knows of the keys that it was asked for. No check waits for
// it: what finds it busy is dropped, and counted.
type topKeys struct {
	mu            sync.Mutex
	asked, denied *topkeys.Sketch // nil if switched off
	dropped       atomic.Uint64
}

func (k *topKeys) start(size int, now int64) {
	if size > 0 {
		k.asked, k.denied = topkeys.New(size, int64(topHalfLife), now), topkeys.New(size, int64(topHalfLife), now)
	}
}

// add counts a check that stands for so many.
func (k *topKeys) add(id bucket.ID, limit, key string, allowed bool, weight uint64, now int64) {
	if k.asked == nil {
		return
	}
	if !k.mu.TryLock() {
		k.dropped.Add(weight)
		return
	}
	k.asked.Add(bytesOf(id), float64(weight), limit, key, now)
	if !allowed {
		k.denied.Add(bytesOf(id), float64(weight), limit, key, now)
	}
	k.mu.Unlock()
}

func (k *topKeys) stats() (s TopKeyStats) {
	s.Dropped = k.dropped.Load()
	if k.asked != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		s.Asked, s.Denied = k.asked.Len(), k.denied.Len()
	}
	return s
}

// topList is what one node says of one of its sketches.
type topList struct {
	floor uint64 // the most that a key has that is not listed
	top   []topEntry
}

type topEntry struct {
	id          [16]byte
	count, over uint64
	limit, key  string
	known       bool
}

// lists is the node's own, silent if it is switched off.
func (k *topKeys) lists(now int64) (asked, denied topList, silent bool) {
	if k.asked == nil {
		return asked, denied, true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return listOf(k.asked, now), listOf(k.denied, now), false
}

// listOf has whole numbers, rounded so that the bounds hold.
func listOf(s *topkeys.Sketch, now int64) (l topList) {
	all := s.Top(maxTop+1, now)
	l.floor = uint64(math.Ceil(s.Floor(now)))
	if len(all) > maxTop {
		l.floor, all = uint64(math.Ceil(all[maxTop].Count)), all[:maxTop]
	}
	for _, e := range all {
		count := uint64(math.Ceil(e.Count))
		l.top = append(l.top, topEntry{e.ID, count, count - uint64(math.Floor(e.Count-e.Over)), e.Limit, e.Key, true})
	}
	return l
}

// What answers opTop follows the answer's header; numbers are unsigned varints. Without
// told the rest is not there. A key's bytes are one more than it has, 0 if its text is
// not told.
//
//	answer  told 1 | asked | denied
//	list    floor | entries | entries
//	entry   id 16 | count | over | limit's bytes | limit | key's bytes | key
//
// append appends as much of the list as there is room for.
func (l *topList) append(b []byte, room int, text bool) []byte {
	var entries []byte
	floor, n := l.floor, 0
	for _, e := range l.top {
		one := append([]byte(nil), e.id[:]...)
		one = binary.AppendUvarint(one, e.count)
		one = binary.AppendUvarint(one, e.over)
		one = binary.AppendUvarint(one, uint64(len(e.limit)))
		one = append(one, e.limit...)
		if text && e.known {
			one = binary.AppendUvarint(one, uint64(len(e.key))+1)
			one = append(one, e.key...)
		} else {
			one = binary.AppendUvarint(one, 0)
		}
		if len(entries)+len(one) > room {
			floor = max(floor, e.count)
			break
		}
		entries = append(entries, one...)
		n++
	}
	b = binary.AppendUvarint(b, floor)
	b = binary.AppendUvarint(b, uint64(n))
	return append(b, entries...)
}

func (c *cursor) topList() (l topList) {
	number := func(most uint64) uint64 {
		v := c.number()
		c.ok = c.ok && v <= most
		return v
	}
	l.floor = number(maxCount)
	for range number(maxTop) {
		var e topEntry
		copy(e.id[:], c.bytes(uint64(len(e.id))))
		e.count = number(maxCount)
		e.over = number(e.count)
		e.limit = string(c.bytes(number(maxNameBytes)))
		if size := number(maxKeyBytes + 1); size > 0 {
			e.key, e.known = string(c.bytes(size-1)), true
		}
		if !c.ok || e.count < l.floor {
			c.ok = false
			return topList{}
		}
		l.top = append(l.top, e)
	}
	return l
}

// parseTop reads what follows the header of an answer.
func parseTop(b []byte) (asked, denied topList, silent bool, err error) {
	c := cursor{b, true}
	told := c.number()
	if c.ok && told == 0 && len(c.b) == 0 {
		return asked, denied, true, nil
	}
	asked, denied = c.topList(), c.topList()
	if !c.ok || told != 1 || len(c.b) > 0 {
		return topList{}, topList{}, false, wire.ErrMalformed
	}
	return asked, denied, false, nil
}

// serveTop answers another member, apart from checks.
func (n *Node) serveTop(from env.Sender, body []byte, answer cluster.Later) {
	if len(body) > 0 {
		answer(nil)
		return
	}
	started := n.serveApart(from, func(context.Context) {
		b := wire.AppendAnswer(nil, wire.Done, 0)
		asked, denied, silent := n.topKeys.lists(n.clock.Steady())
		if silent {
			answer(append(b, 0))
			return
		}
		text := n.cfg.tellsKeys()
		b = asked.append(append(b, 1), topBytes/2, text)
		answer(denied.append(b, topBytes/2, text))
	})
	if !started {
		answer(wire.AppendAnswer(nil, wire.Unreached, 0))
	}
}

// tellsKeys reports whether a key's text may go to another member: not where anybody who
// reaches the port is one. A Cluster of the caller's knows whom it connects.
func (c *Config) tellsKeys() bool {
	return c.Cluster != nil || len(c.Secrets) > 0 || c.TLS != nil
}

// TopKeys returns the n keys that are asked for most in the whole cluster, and the n that
// are denied most, 1 to 100 each. It asks every member, for a second at most, and names
// those that did not answer. Without Secrets and TLS other members tell no key's text.
// The error is ErrInvalid, ErrClosed, or the context's if that is done.
func (n *Node) TopKeys(ctx context.Context, most int) (TopKeys, error) {
	if most < 1 || most > maxTop {
		return TopKeys{}, fmt.Errorf("%w TopKeys: %d keys: ask for 1 to %d", ErrInvalid, most, maxTop)
	}
	if n.life.Ended() {
		return TopKeys{}, ErrClosed
	}
	v := n.view.Load()
	type said struct {
		asked, denied topList
		silent        bool
		err           error
	}
	all := make([]said, len(v.Members))
	var asking errgroup.Group
	asking.SetLimit(topAsked)
	for i := range v.Members {
		s := &all[i]
		if i == v.Self {
			continue
		}
		asking.Go(func() error {
			s.asked, s.denied, s.silent, s.err = n.askForTop(ctx, v, i)
			return nil
		})
	}
	_ = asking.Wait() // each has its own error
	if err := ctx.Err(); err != nil {
		return TopKeys{}, err
	}
	var t TopKeys
	var asked, denied []topList
	for i, s := range all {
		if i == v.Self {
			s.asked, s.denied, s.silent = n.topKeys.lists(n.clock.Steady())
		}
		switch {
		case s.err != nil:
			t.Missing = append(t.Missing, v.Members[i].Name)
		case s.silent:
			t.Silent = append(t.Silent, v.Members[i].Name)
		default:
			asked, denied = append(asked, s.asked), append(denied, s.denied)
		}
	}
	if v.Self < 0 { // it has left
		if a, d, silent := n.topKeys.lists(n.clock.Steady()); !silent {
			asked, denied = append(asked, a), append(denied, d)
		}
	}
	t.Asked, t.Denied = topOf(asked, denied, most)
	return t, nil
}

// askForTop asks one member, through others if it is heard by them alone.
func (n *Node) askForTop(ctx context.Context, v *view.View, member int) (asked, denied topList, silent bool, err error) {
	hop := v.Next[member]
	if hop < 0 {
		return asked, denied, false, cluster.ErrUnheard
	}
	request := wire.Header{Op: wire.OpTop, Hops: wire.MaxHops, Wait: topWait, To: v.Hashes[member]}.Append(nil)
	answer, err := v.Members[hop].Peer.Ask(ctx, request, nil, topWait)
	if err != nil {
		return asked, denied, false, err
	}
	if s, err := wire.ParseAnswer(answer[:min(len(answer), wire.AnswerHeaderBytes)], 0); err != nil || s != wire.Done {
		return asked, denied, false, cmp.Or(err, env.ErrUnreached)
	}
	return parseTop(answer[wire.AnswerHeaderBytes:])
}

// topOf merges what nodes say into the keys asked for most and denied most. A node that
// does not list a key may have been asked for it as often as its floor says, which is
// added to the count and to what it may be too high by.
func topOf(asked, denied []topList, most int) (byAsks, byDenials []TopKey) {
	keys := make(map[[16]byte]*TopKey)
	tally := func(lists []topList, of func(*TopKey) (count, over *uint64)) {
		floors := uint64(0)
		for _, l := range lists {
			floors += l.floor
		}
		for _, l := range lists {
			for _, e := range l.top {
				k := keys[e.id]
				if k == nil {
					k = &TopKey{Limit: e.limit, ID: e.id}
					keys[e.id] = k
				}
				if e.known && !k.Known {
					k.Key, k.Known = e.key, true
				}
				count, over := of(k)
				*count += e.count - l.floor // floors has one for each node
				*over += e.over - l.floor
			}
		}
		for _, k := range keys {
			count, over := of(k)
			*count += floors
			*over += floors
		}
	}
	// What is denied is listed first, so that each key that is listed at all has a share
	// of both floors.
	for _, l := range denied {
		for _, e := range l.top {
			if keys[e.id] == nil {
				keys[e.id] = &TopKey{Limit: e.limit, ID: e.id}
			}
		}
	}
	tally(asked, func(k *TopKey) (*uint64, *uint64) { return &k.Asks, &k.AsksOver })
	tally(denied, func(k *TopKey) (*uint64, *uint64) { return &k.Denials, &k.DenialsOver })
	pick := func(of func(*TopKey) (count, over uint64)) (top []TopKey) {
		for _, k := range keys {
			if count, over := of(k); count > over {
				top = append(top, *k)
			}
		}
		slices.SortFunc(top, func(a, b TopKey) int {
			x, _ := of(&a)
			y, _ := of(&b)
			return cmp.Or(cmp.Compare(y, x), slices.Compare(a.ID[:], b.ID[:]))
		})
		return top[:min(len(top), most)]
	}
	return pick(func(k *TopKey) (uint64, uint64) { return k.Asks, k.AsksOver }),
		pick(func(k *TopKey) (uint64, uint64) { return k.Denials, k.DenialsOver })
}
