package processtests

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/publish"
	"github.com/weir-go/weir/internal/realtime"
)

func TestWhatIsPublishedGoesOverSockets(t *testing.T) {
	t.Parallel()
	nodes := fleet(t, 3, nil)
	large := bytes.Repeat([]byte("v"), publish.MaxValue)
	for i, n := range nodes {
		require.NoError(t, n.Publish(fmt.Sprint("from ", i), 0, large))
	}
	for _, n := range nodes {
		realtime.Eventually(t, "all have what the others published", func() bool {
			values, _ := n.Published("from ")
			return len(values) == 3
		})
	}
	joiner, err := weir.Start(t.Context(), weir.Config{Bind: "127.0.0.1:0", Join: []string{nodes[0].Members()[0].Addr}, Logger: quiet})
	require.NoError(t, err)
	defer joiner.Close()
	realtime.Eventually(t, "the joiner has what was published", func() bool {
		values, _ := joiner.Published("from ")
		return len(values) == 3
	})
}
