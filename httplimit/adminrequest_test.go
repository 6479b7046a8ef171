package httplimit

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/weirtest"
)

func TestDescribedRequestEndsByItsTexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := weirtest.NewNetwork(1, weirtest.Link{Latency: time.Millisecond})
		a := startMemberOf(t, network, "a", `
rules:
- {name: streams, match: {path: /}, key: user, limit: {algorithm: in_flight, rate: 2}}
- {name: hourly, match: {path: /scarce}, key: user, limit: {rate: 1, per: 240h}}
- {name: queued, match: {path: /queued}, key: global, limit: {algorithm: in_flight, rate: 1}, queue: 5s}
`, weir.Config{})
		defer a.kill()
		begin := func(path, more string) (d requestAnswer) {
			a.get(http.MethodPost, "/v1/request", fmt.Sprintf(`{"path":%q,"user":"u"%s}`, path, more), http.StatusOK, &d)
			return d
		}
		text := func(of any) string {
			b, err := json.Marshal(of)
			require.NoError(t, err)
			return string(b)
		}
		w := a.post("/v1/request", 400, `{"path":"/","user":"u"}`)
		require.Contains(t, w.Body.String(), "streams")
		a.post("/v1/request", 400, `{"path":"/","user":"u","ttl":"2h"}`)

		const ttl = `,"ttl":"10s"`
		d := begin("/", ttl)
		require.True(t, d.Allowed)
		require.Len(t, d.Holds, 1)
		require.EqualValues(t, 1, a.left("streams", "u"))
		a.post("/v1/renew", 204, "%s", text(d.Holds[0]))
		a.post("/v1/release", 204, "%s", text(d.Holds[0]))
		time.Sleep(time.Second)
		require.EqualValues(t, 2, a.left("streams", "u"))

		require.Len(t, begin("/scarce", ttl).Holds, 1)
		for range 3 {
			d = begin("/scarce", ttl)
			require.False(t, d.Allowed)
			require.Empty(t, d.Holds, "hourly denies")
			time.Sleep(time.Second)
			require.EqualValues(t, 1, a.left("streams", "u"))
		}
		time.Sleep(10*time.Second + holdEnds)
		require.EqualValues(t, 2, a.left("streams", "u"), "nobody has renewed it")

		first := begin("/queued", `,"ttl":"1m"`)
		require.Len(t, first.Holds, 2)
		begun := time.Now()
		time.AfterFunc(2*time.Second, func() {
			for _, h := range first.Holds {
				a.post("/v1/release", 204, "%s", text(h))
			}
		})
		require.True(t, begin("/queued", ttl).Allowed)
		require.GreaterOrEqual(t, time.Since(begun), 2*time.Second)
		begun = time.Now()
		require.False(t, begin("/queued", ttl).Allowed)
		require.Equal(t, 5*time.Second, time.Since(begun).Round(time.Second))
	})
}

func TestDescribedRequestsHoldInOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := weirtest.NewNetwork(1, weirtest.Link{Latency: time.Millisecond})
		const file = "rules: [{name: queued, match: {path: /}, key: global, limit: {algorithm: in_flight, rate: 1}, queue: 1m}]"
		a, b := startMemberOf(t, network, "a", file, weir.Config{}), startMemberOf(t, network, "b", file, weir.Config{})
		defer a.kill()
		defer b.kill()
		time.Sleep(3 * time.Second)
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		const all = 12
		for i := range all {
			wg.Go(func() { // one after the other, each for longer than it takes all to come
				var d requestAnswer
				a.get(http.MethodPost, "/v1/request", `{"path":"/","ttl":"1m"}`, http.StatusOK, &d)
				require.True(t, d.Allowed)
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				time.Sleep(time.Second)
				text, err := json.Marshal(d.Holds[0])
				require.NoError(t, err)
				a.post("/v1/release", 204, "%s", text)
			})
			time.Sleep(7 * time.Millisecond)
		}
		waiting := func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(order) < all-1
		}
		for waiting() {
			var h heldAnswer
			b.get(http.MethodPost, "/v1/hold", `{"limit":"queued","key":""}`, http.StatusOK, &h)
			require.False(t, h.Allowed, "what does not wait overtakes what does")
			time.Sleep(3 * time.Millisecond)
		}
		wg.Wait()
		want := make([]int, all)
		for i := range want {
			want[i] = i
		}
		require.Equal(t, want, order)
	})
}
