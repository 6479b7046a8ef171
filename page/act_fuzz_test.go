package page

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Any request either executes one action, or has no effect.
func FuzzAct(f *testing.F) {
	f.Add("application/json", `{"member": "a", "action": "kill"}`)
	f.Add("application/json; charset=utf-8", `{"member": "a", "action": "kill", "more": 1}`)
	f.Add("application/json", `{"member": "", "action": "kill"}`)
	f.Add("application/json", `{"member": "a"`)
	f.Add("text/plain", `{"member": "a", "action": "kill"}`)
	f.Add("application/json", `{"member": "`+strings.Repeat("a", maxAct)+`", "action": "kill"}`)
	source := new(fake)
	_, url := serve(f, Options{Source: source})
	f.Fuzz(func(t *testing.T, kind, body string) {
		source.mu.Lock()
		source.acted = nil
		source.mu.Unlock()
		r, err := http.NewRequest(http.MethodPost, url+"/act", strings.NewReader(body))
		require.NoError(t, err)
		r.Header["Content-Type"] = []string{kind}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			require.ErrorContains(t, err, "invalid header field value")
			return
		}
		answer.Body.Close()
		source.mu.Lock()
		defer source.mu.Unlock()
		if answer.StatusCode != http.StatusNoContent {
			require.GreaterOrEqual(t, answer.StatusCode, 400)
			require.Less(t, answer.StatusCode, 500)
			require.Empty(t, source.acted)
			return
		}
		require.Len(t, source.acted, 1)
		require.Contains(t, kind, "json")
	})
}
