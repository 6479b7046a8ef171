package weir

import (
	"github.com/weir-go/weir/internal/check"
	"github.com/weir-go/weir/internal/publish"
	"github.com/weir-go/weir/internal/wire"
)

// messages handles the requests of members that package check leaves to the node.
type messages struct{ n *Node }

// IsSlow reports whether the handling of a message may take long.
func (messages) IsSlow(op wire.Op) bool {
	return op == wire.OpCompare || op == wire.OpTop || op == wire.OpTotals || op == wire.OpBans
}

// Handle appends the response to a message to dst.
func (m messages) Handle(q *check.Message, dst []byte) ([]byte, error) {
	n := m.n
	switch {
	case q.Op == wire.OpPublish:
		return dst, n.published.Serve(q.Body, q.From)
	case q.Op == wire.OpDeclare:
		return dst, n.registry.Compare(q.Body, q.From, n.env.Monotonic())
	case q.Op == wire.OpCompare:
		question, err := publish.ParseQuestion(q.Body)
		if err != nil {
			return nil, err
		}
		return n.published.Answer(dst, &question, q.From), nil
	case q.Op == wire.OpSince:
		return n.epochs.Serve(q.Body, dst)
	case q.Op == wire.OpTop && len(q.Body) == 0:
		return n.clients.survey.AppendTop(dst), nil
	case q.Op == wire.OpTotals && len(q.Body) == 0:
		return n.clients.survey.AppendTotals(dst), nil
	case q.Op == wire.OpBans && len(q.Body) == 0:
		return n.clients.survey.AppendBans(dst), nil
	}
	return nil, wire.ErrMalformed
}
