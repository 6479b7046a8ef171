package owner

import (
	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// newOwner returns an Owner with authority over all IDs and a clock that stands still, and its
// view.
func newOwner() (*Owner, *view.View) {
	counts := bucket.NewStore(10, bucket.Salt{})
	stream := countsync.New(1, counts)
	o := New(env.OneClock(func() int64 { return 0 }), 0, counts, stream, nil)
	stream.WhenReset(func(id bucket.ID, _ uint64, reset func()) { o.Reset(id, reset) })
	v := (&view.View{View: &cluster.View{Self: 0}, Complete: true}).ReceiveRanges(countsync.All())
	return o, v
}

func (o *Owner) used(id bucket.ID, now int64) int64 {
	used, _, _ := o.counts.Used(id, now)
	return used
}

func askFor(id bucket.ID, l *bucket.Limit, units int64) wire.Ask {
	return wire.Ask{ID: id, Limit: l, Units: units, Leases: true}
}
