package check

import (
	"math"

	"github.com/weir-go/weir/internal/wire"
)

// AskList has the asks of an AllowAll, whose units TakeAll takes together. Asks of the same count are
// summed. AskLists come from a pool, so that TakeAll allocates nothing if this
// node has authority over all counts.
type AskList struct {
	asks    []wire.Ask // at most one for each count
	results []wire.Result
	indexes []int // for each ask that was added, the index in asks of the ask that has its units
}

// NewAskList returns an empty list for at most the given number of asks. The caller must call FreeAskList.
func (c *Checks) NewAskList(asks int) *AskList {
	l := c.lists.Get().(*AskList)
	if cap(l.asks) < asks {
		asks = max(asks, 8)
		*l = AskList{make([]wire.Ask, 0, asks), make([]wire.Result, 0, asks), make([]int, 0, asks)}
	}
	return l
}

// FreeAskList clears the asks of a list, which refer to limits, and returns the list to the pool.
func (c *Checks) FreeAskList(l *AskList) {
	clear(l.asks[:cap(l.asks)])
	l.asks, l.results, l.indexes = l.asks[:0], l.results[:0], l.indexes[:0]
	c.lists.Put(l)
}

// NextAsk returns the ask that Add adds next. The caller must set all fields that a take uses, because the ask
// may have old values.
func (l *AskList) NextAsk() *wire.Ask { return &l.asks[:len(l.asks)+1][len(l.asks)] }

// Add adds the ask that NextAsk has returned, or adds its units to an ask of the same count. It returns the ask
// with the units. The sum of several asks is a Shadow if all of them are, and critical if all of them are.
func (l *AskList) Add() *wire.Ask {
	one, at := l.NextAsk(), 0
	for at < len(l.asks) && l.asks[at].ID != one.ID {
		at++
	}
	l.indexes = append(l.indexes, at)
	if at == len(l.asks) {
		l.asks, l.results = l.asks[:at+1], l.results[:at+1]
		return one
	}
	sum := &l.asks[at]
	sum.Shadow = sum.Shadow && one.Shadow
	sum.Units += min(one.Units, math.MaxInt64-sum.Units)
	if one.Limit.Keep > 0 {
		sum.Limit = one.Limit
	}
	return sum
}

// Entry returns the ask that has the units of the added ask i, counted from 0, and its result of TakeAll.
func (l *AskList) Entry(i int) (*wire.Ask, *wire.Result) {
	return &l.asks[l.indexes[i]], &l.results[l.indexes[i]]
}
