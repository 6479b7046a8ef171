package weir

import (
	"context"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	countsync "github.com/weir-go/weir/sync"
)

// resetsAtOnce bounds how many members are told of a reset at a time.
const resetsAtOnce = 64

// reset forgets a count here and on every other member of the roster, each told
// directly or through others. Whom it does not reach learns it from the states
// that it is sent later, or from its own spends being refused. Of a Global limit
// it tells one node of each other region as well, which has the others know.
func (n *Node) reset(ctx context.Context, a *ask) error {
	v, now := n.view.Load(), n.now()
	a.units = int64(n.stream.Reset(a.id, now))
	asks := []ask{*a}
	var regions []string
	if a.global && n.regions.Holdings != nil {
		others := *a
		others.id = countsync.Elsewhere(a.id)
		others.units = int64(n.stream.Reset(others.id, now))
		asks = append(asks, others)
		regions = slices.Sorted(maps.Keys(n.regions.links))
	}

	var (
		telling errgroup.Group
		missed  = make([]bool, len(v.Members))
		unasked = make([]bool, len(regions))
	)
	telling.SetLimit(len(regions) + resetsAtOnce) // no member waits for a region that is slow
	for i, region := range regions {
		telling.Go(func() error {
			unasked[i] = n.resetRegion(ctx, region, asks) != nil
			return nil
		})
	}
	for i := range v.Members {
		if i == v.Self {
			continue
		}
		if v.next[i] < 0 {
			missed[i] = true
			continue
		}
		telling.Go(func() error {
			by := answerer{member: i, hop: v.next[i]}
			missed[i] = n.forward(ctx, v, by, opReset, asks, make([]result, len(asks)), n.time(now), n.cfg.Timeout) != nil
			return nil
		})
	}
	_ = telling.Wait() // who was not reached is in missed and unasked
	if err := ctx.Err(); err != nil {
		return err
	}
	var partial ErrPartial
	for i, m := range v.Members {
		if missed[i] {
			partial.Members = append(partial.Members, m.Name)
		}
	}
	for i, region := range regions {
		if unasked[i] {
			partial.Members = append(partial.Members, "region "+region)
		}
	}
	if partial.Members != nil {
		return &partial
	}
	return nil
}

// resetsInTime reports whether the numbers of a reset are times that a member's clock
// may have come to. Who asked is answered nothing otherwise, and names this node as
// one that was not reached.
func resetsInTime(h header, request []byte, now int64) bool {
	for i := range int(h.asks) {
		if a, err := parseAsk(request, i, new(bucket.Limit)); err == nil && !countsync.ResetInTime(uint64(a.units), now) {
			return false
		}
	}
	return true
}

// resetRegion has one node of another region forget counts.
func (n *Node) resetRegion(ctx context.Context, region string, asks []ask) error {
	peer := n.cluster.Region(region)
	if peer == nil {
		return cluster.ErrUnheard
	}
	request := header{op: opReset, asks: uint8(len(asks))}.append(nil)
	for i := range asks {
		request = asks[i].append(request)
	}
	answer, err := peer.Ask(ctx, request, nil, exchangeWait)
	if err != nil {
		return err
	}
	if s, err := parseAnswer(answer, len(asks)); err != nil || s != statusDone {
		return errUnreached
	}
	return nil
}

// noReset marks results of counts that no reset is known of.
const noReset = 1

// resetNumber is the number of a count's last reset that this node knows of, or noReset.
// What it lends, grants and denies is marked with that.
func (n *Node) resetNumber(id bucket.ID, now int64) uint64 {
	return max(noReset, n.stream.ResetNumber(id, now))
}

// whenReset resets a count, here or as another node did it, and forgets what was lent and
// denied of it before.
func (n *Node) whenReset(id bucket.ID, number uint64, reset func()) {
	s := n.lent.lock(id)
	reset()
	s.reset(id)
	s.mu.Unlock()
	n.leases.end(id, number)
	n.pushbacks.reset(id, number)
}
