package weir

import (
	"context"
	"sync"
)

// reset forgets a count here and on every other member of the roster, each told
// directly or through others. Whom it does not reach learns it from the states
// that it is sent later, or from its own spends being refused.
func (n *Node) reset(ctx context.Context, a *ask) error {
	v, now := n.view.Load(), n.now()
	a.units = int64(n.stream.Reset(a.id, now))

	var (
		wait   sync.WaitGroup
		missed = make([]bool, len(v.Members))
	)
	for i := range v.Members {
		if i == v.Self {
			continue
		}
		if v.next[i] < 0 {
			missed[i] = true
			continue
		}
		wait.Go(func() {
			by := answerer{i, v.next[i], 0}
			missed[i] = n.relayed(ctx, v, by, opReset, []ask{*a}, make([]result, 1)) != nil
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
