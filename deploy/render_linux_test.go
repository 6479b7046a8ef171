//go:build render

package deploy

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/freeport"
)

// Each pod has an address of its own and the ports of the chart. Here there is one address, so
// the chart is rendered with other ports for each.
func TestNodesOfIPv6FindEachOther(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("this machine has no IPv6: ", err)
	}
	l.Close()
	built := binaries(t)
	var all []*workload
	var join []string
	var mounts string
	for range 2 {
		ports := make(values)
		for _, name := range []string{"peers", "checks", "admin", "health", "envoy"} {
			_, text, err := net.SplitHostPort(freeport.Addr(t))
			require.NoError(t, err)
			port, err := strconv.Atoi(text)
			require.NoError(t, err)
			ports[name] = port
		}
		text, _, err := helm(values{"image": values{"repository": "weir"}, "replicaCount": 2, "ports": ports})
		require.NoError(t, err)
		m, err := read([]byte(text))
		require.NoError(t, err)
		w := m.workload(t)
		all, join, mounts = append(all, w), append(join, fmt.Sprintf("[::1]:%d", ports["peers"])), mounted(t, m, w)
	}
	var nodes []*replica
	for _, w := range all {
		nodes = append(nodes, startJoining(t, built, mounts, w, "::1", join))
	}
	for _, n := range nodes {
		require.Eventually(t, func() bool { status, _ := n.get("health", "/ready"); return status == http.StatusOK }, patience, 20*time.Millisecond, "it is not ready")
		n.well(t, built, mounts)
	}
	require.Contains(t, nodes[0].take(t), `"allowed":true`)
	for _, n := range nodes {
		n.requireLeft(t, 999, "they count together")
	}
	for _, n := range nodes {
		n.leave(t)
	}
}
