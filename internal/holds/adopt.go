package holds

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// ErrOver is the error where a client's hold was released, or was not renewed in time.
var ErrOver = errors.New("weir: the hold is over")

// Renew has a client's hold go on for ttl, wherever it is: at the node that has it, or where
// that is gone at the member that answers for its count, which takes it over. The error is
// ErrOver, or that no member could be asked.
func (h *Holds) Renew(ctx context.Context, c Client, ttl time.Duration) error {
	return h.claim(ctx, claim{verbRenew, ref{c.ID, c.Holder, c.Number}, int64(ttl)})
}

// Drop ends a client's hold, wherever it is. It is no error that it is over.
func (h *Holds) Drop(ctx context.Context, c Client) error {
	err := h.claim(ctx, claim{verbRelease, ref{c.ID, c.Holder, c.Number}, 0})
	if errors.Is(err, ErrOver) {
		return nil
	}
	return err
}

// answer is what a member says to a claim.
type answer byte

const (
	over      answer = iota // it does not have the hold, and nobody else would
	done                    // it has carried out the claim
	holderHas               // it leaves the answer to the holder, which it reaches
)

// claim asks the holder, and after that the member that answers for the count, which knows
// whether the hold is over. What is released ends there too.
func (h *Holds) claim(ctx context.Context, c claim) (err error) {
	v := h.cfg.View()
	holder, known := v.Named[c.of.holder]
	way := v.Route(c.of.id, h.cfg.Clock.Steady())
	if known {
		var said answer
		if said, err = h.claimAt(ctx, v, holder, c); said == done {
			return nil
		}
	}
	if way.To >= 0 && (!known || way.To != holder) {
		said, unasked := h.claimAt(ctx, v, way.To, c)
		switch {
		case said == done || unasked == nil && c.verb == verbRelease:
			return nil
		case unasked != nil:
			err = unasked
		case said == over:
			err = nil
		}
	}
	if err == nil {
		err = ErrOver
	}
	return err
}

func (h *Holds) claimAt(ctx context.Context, v *view.View, to int, c claim) (answer, error) {
	if to == v.Self {
		return h.claimed(c), nil
	}
	said, err := h.call(ctx, v, v.Hashes[to], wire.OpAdopt, c.append(nil), h.cfg.Timeout)
	if err != nil || len(said) != 1 || said[0] > byte(holderHas) {
		return over, cmp.Or(err, wire.ErrMalformed)
	}
	return answer(said[0]), nil
}

// claimed carries out a claim here: of a hold of this node, or of one of a node that is gone.
func (h *Holds) claimed(c claim) answer {
	now := h.cfg.Clock.Steady()
	o := h.table.find(c.of)
	if o == nil { // this node may have taken it over
		o = h.table.find(ref{c.of.id, h.self(), c.of.number})
	}
	if c.verb == verbRelease {
		if o != nil {
			h.Release(o)
		}
		if h.table.end(c.of) || o != nil {
			return done
		}
		return over
	}
	if o != nil && h.table.extend(o, now+c.ttl) {
		return done
	}
	v := h.cfg.View()
	if i, known := v.Named[c.of.holder]; known && v.Next[i] >= 0 && i != v.Self {
		return holderHas
	}
	units, term, held := h.table.adopt(c.of, h.self(), now)
	if !held {
		return over
	}
	limit := bucket.Limit{Algorithm: bucket.InFlight, Rate: units, Per: term}
	a := wire.Ask{ID: c.of.id, Limit: &limit, Units: units, Receipt: bucket.Receipt(c.of.number), ResetNumber: h.self()}
	h.Has(new(Hold), &a, false, now, now+c.ttl)
	return done
}

// ServeAdopt answers claim, after the header of the answer.
func (h *Holds) ServeAdopt(message, dst []byte) ([]byte, error) {
	c, err := parseClaim(message)
	if err != nil {
		return nil, err
	}
	return append(dst, byte(h.claimed(c))), nil
}
