package rules

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/weirtest"
)

// startBooks starts a cluster in virtual time, and a Static Book of the text on each node. The test must be in a bubble
// of synctest.
func startBooks(t *testing.T, text string) (*weirtest.Cluster, map[string]*Book) {
	c, err := weirtest.NewCluster(t.Context(), weirtest.Options{Config: weir.Config{Logger: slog.New(slog.DiscardHandler)}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	books := make(map[string]*Book)
	for _, name := range c.Names() {
		books[name] = staticBook(t, c.Node(name), text)
	}
	return c, books
}

func TestOverrideAppliesOnAllNodesUntilItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, books := startBooks(t, overridable)
		holds := func(rate int) {
			t.Helper()
			for name, book := range books {
				require.EqualValues(t, rate, rateOf(book), name)
			}
		}
		time.Sleep(time.Minute)
		ends := time.Now().Add(5 * time.Minute)
		require.NoError(t, books["a"].Override("r", "k", Override{Rate: 5000, Control: Control{Until: ends}}))
		require.EqualValues(t, 5000, rateOf(books["a"]), "here at once")
		time.Sleep(pace + 100*time.Millisecond)
		holds(5000)
		time.Sleep(time.Until(ends) - time.Second) // Until has whole seconds
		holds(5000)
		time.Sleep(time.Second + pace)
		holds(10)
	})
}

func TestBlockAppliesOnAllNodesUntilItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, books := startBooks(t, blockable)
		blocks := func(want bool) {
			t.Helper()
			for name, book := range books {
				require.Equal(t, want, book.Current().Block(&Request{User: "eve"}) != nil, name)
			}
		}
		time.Sleep(time.Minute)
		ends := time.Now().Add(5 * time.Minute).Truncate(time.Second)
		_, err := books["a"].Block("eve", Block{Kind: BlockUser, Control: Control{Until: ends}})
		require.NoError(t, err)
		time.Sleep(pace + 100*time.Millisecond)
		blocks(true)
		time.Sleep(time.Until(ends) - time.Millisecond)
		blocks(true)
		time.Sleep(time.Millisecond)
		blocks(false)
	})
}
