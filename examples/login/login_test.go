package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testnode"
	"github.com/weir-go/weir/weirtest"
)

// site is a set of three replicas of the login page. Only the password "right" is valid.
type site struct {
	replicas [3]http.Handler
	tries    atomic.Int64 // passwords checked
}

func start(t *testing.T) *site {
	text, err := os.ReadFile("rules.yaml")
	require.NoError(t, err)
	c, err := weirtest.NewCluster(t.Context(), weirtest.Options{Config: weir.Config{Logger: slog.New(slog.DiscardHandler)}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	s := new(site)
	for i, name := range c.Names() {
		node := c.Node(name)
		book := testnode.Book(t, node, string(text))
		s.replicas[i], err = login(node, book, func(_, password string) bool {
			s.tries.Add(1)
			time.Sleep(100 * time.Millisecond) // hashing takes time
			return password == "right"
		})
		require.NoError(t, err)
	}
	return s
}

// try logs in at a replica, and returns the status.
func (s *site) try(replica int, address, account, password string) int {
	r := httptest.NewRequest(http.MethodPost, "/login", strings.NewReader(url.Values{"account": {account}, "password": {password}}.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.RemoteAddr = address + ":1234"
	w := httptest.NewRecorder()
	s.replicas[replica%3].ServeHTTP(w, r)
	return w.Code
}

func TestConcurrentGuessesGetFiveTries(t *testing.T) {
	for about, guess := range map[string]func(i int) (address, account string){
		"for an account":  func(i int) (string, string) { return fmt.Sprintf("192.0.2.%d", i), "ada" },
		"from an address": func(i int) (string, string) { return "192.0.2.1", fmt.Sprint("user", i) },
		"in spellings":    func(i int) (string, string) { return fmt.Sprintf("192.0.2.%d", i), []string{"ada", "Ada", " ADA"}[i%3] },
	} {
		t.Run(about, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := start(t)
				var all sync.WaitGroup
				for i := range 64 {
					all.Go(func() {
						address, account := guess(i)
						s.try(i, address, account, "wrong")
					})
				}
				all.Wait()
				time.Sleep(time.Second) // until all refunds have arrived
				require.Equal(t, int64(5), s.tries.Load())
				address, account := guess(0)
				require.Equal(t, http.StatusTooManyRequests, s.try(1, address, account, "right"))
				require.Equal(t, http.StatusOK, s.try(1, "198.51.100.1", "bob", "right"), "others log in")
			})
		})
	}
}

func TestSuccessesAreFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		for i := range 4 {
			require.Equal(t, http.StatusUnauthorized, s.try(i, "192.0.2.1", "ada", "wrong"))
		}
		for i := range 20 {
			require.Equal(t, http.StatusOK, s.try(i, "192.0.2.1", "ada", "right"))
			time.Sleep(100 * time.Millisecond) // the unit is returned after the response
		}
		require.Equal(t, http.StatusUnauthorized, s.try(0, "192.0.2.1", "ada", "wrong"))
		require.Equal(t, http.StatusTooManyRequests, s.try(1, "192.0.2.1", "ada", "right"))
		require.Equal(t, http.StatusTooManyRequests, s.try(2, "192.0.2.1", "bob", "right"))
		require.Equal(t, http.StatusTooManyRequests, s.try(2, "192.0.2.2", "ada", "right"))
	})
}

func TestFailuresCountForFifteenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		for i := range 5 {
			require.Equal(t, http.StatusUnauthorized, s.try(i, "192.0.2.1", "ada", "wrong"))
		}
		time.Sleep(14 * time.Minute)
		require.Equal(t, http.StatusTooManyRequests, s.try(0, "192.0.2.1", "ada", "right"))
		time.Sleep(time.Minute)
		require.Equal(t, http.StatusOK, s.try(0, "192.0.2.1", "ada", "right"))
	})
}

func TestFormWithoutAccountIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		require.Equal(t, http.StatusBadRequest, s.try(0, "192.0.2.1", " ", "right"))
		require.Equal(t, http.StatusBadRequest, s.try(0, "192.0.2.1", "ada", strings.Repeat("a", 5000)))
		require.Zero(t, s.tries.Load())
	})
}
