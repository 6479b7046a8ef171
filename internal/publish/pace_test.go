package publish_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/loglimit"
)

func TestRepeatedLineIsLoggedOncePerPace(t *testing.T) {
	var p loglimit.Line
	at := time.Unix(1000, 0)
	for i, step := range []struct {
		later    time.Duration
		unlogged uint64
		due      bool
	}{
		{0, 0, true}, {0, 0, false}, {loglimit.Every - 1, 0, false}, {loglimit.Every, 2, true}, {2*loglimit.Every - 1, 0, false}, {5 * loglimit.Every, 1, true},
		{0, 0, true}, // the clock was set back
		{time.Second, 0, false},
	} {
		unlogged, due := p.Due(at.Add(step.later))
		require.Equal(t, step.due, due, i)
		require.Equal(t, step.unlogged, unlogged, i)
	}
}
