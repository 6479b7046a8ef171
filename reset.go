package weir

import (
	"context"
	"sync"

	"github.com/weir-go/weir/bucket"
)

// reset forgets a count here and on every other member of the roster, each asked
// directly or through others.
func (n *Node) reset(ctx context.Context, a *ask) error {
	v, now := n.view.Load(), n.now()
	n.apply(opReset, 0, a, a.limit, now, new(bucket.Result))

	var (
		wait   sync.WaitGroup
		missed = make([]bool, len(v.Members))
	)
	for i := range v.Members {
		if i == v.Self {
			continue
		}
		w, hop := v.route(i, now)
		if w == alone {
			missed[i] = true
			continue
		}
		wait.Go(func() {
			_, err := n.reach(ctx, v, w, hop, i, opReset, 0, []ask{*a}, make([]result, 1))
			missed[i] = err != nil
		})
	}
	wait.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	var partial ErrPartial
	for i, m := range v.Members {
		if missed[i] {
			partial.Members = append(partial.Members, m.Name)
		}
	}
	if partial.Members != nil {
		return &partial
	}
	return nil
}
