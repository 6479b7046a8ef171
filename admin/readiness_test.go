package admin

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testnode"
)

func TestReadinessReportsNodeReady(t *testing.T) {
	n := testnode.Start(t, weir.Config{})
	status := func() int {
		w := httptest.NewRecorder()
		Readiness(n).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/ready", nil))
		require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
		return w.Code
	}
	require.Equal(t, http.StatusOK, status())
	require.NoError(t, n.Leave(t.Context()))
	require.Equal(t, http.StatusServiceUnavailable, status())
	require.NoError(t, n.Close())
	require.Equal(t, http.StatusServiceUnavailable, status())
}
