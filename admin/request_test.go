package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestHoldsOfRequestAreReleasedByText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := startTestAPI(t, `
rules:
- {name: streams, match: {path: /}, key: user, limit: {algorithm: in_flight, rate: 2}}
- {name: hourly, match: {path: /scarce}, key: user, limit: {rate: 1, per: 240h}}
- {name: queued, match: {path: /queued}, key: global, limit: {algorithm: in_flight, rate: 1}, queue: 5s}
`)
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
		require.EqualValues(t, 1, a.remaining("streams", "u"))
		a.post("/v1/renew", 200, "%s", text(d.Holds[0]))
		a.post("/v1/release", 204, "%s", text(d.Holds[0]))
		time.Sleep(time.Second)
		require.EqualValues(t, 2, a.remaining("streams", "u"))

		require.Len(t, begin("/scarce", ttl).Holds, 1)
		for range 3 {
			d = begin("/scarce", ttl)
			require.False(t, d.Allowed)
			require.Empty(t, d.Holds, "hourly denies")
			time.Sleep(time.Second)
			require.EqualValues(t, 1, a.remaining("streams", "u"))
		}
		time.Sleep(10*time.Second + holdEnds)
		require.EqualValues(t, 2, a.remaining("streams", "u"), "nobody has renewed it")

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
