package audit

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "github.com/weir-go/weir/internal/testenv"
)

// The queue behaves like a bounded list: published slots are read in the order of the
// claims, and the number of claimed slots is bounded by the size.
func TestQueueIsBoundedList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 5).Draw(t, "size")
		q := newQueue(size)
		type claimed struct {
			s  *slot
			at uint64
			is bool // published
		}
		var model []claimed
		var next int64
		closed := false
		t.Repeat(map[string]func(*rapid.T){
			"claim": func(t *rapid.T) {
				s, at := q.claim()
				require.Equal(t, !closed && len(model) < size, s != nil)
				if s != nil {
					s.at, s.event.Err = next, errors.New("some")
					next++
					model = append(model, claimed{s, at, false})
				}
			},
			"publish": func(t *rapid.T) {
				if len(model) > 0 {
					c := &model[rapid.IntRange(0, len(model)-1).Draw(t, "which")]
					if !c.is {
						c.s.publish(c.at)
						c.is = true
					}
				}
			},
			"read": func(t *rapid.T) {
				s := q.nextPublished()
				require.Equal(t, len(model) > 0 && model[0].is, s != nil)
				if s != nil {
					require.Equal(t, next-int64(len(model)), s.at)
					q.release(s)
					require.NoError(t, s.event.Err, "it holds what has ended")
					model = model[1:]
				}
			},
			"close": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "really") == 0 {
					q.close()
					closed = true
				}
			},
			"": func(t *rapid.T) { require.Equal(t, len(model), q.len()) },
		})
	})
}
