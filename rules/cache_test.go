package rules

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBookStartsFromCache(t *testing.T) {
	for about, first := range map[string]any{"a source that fails": errors.New("down"), "an invalid text": "rules: 5", "a stale text": ratedFile(3, 30), "a new algorithm": strings.ReplaceAll(ratedFile(4, 40), "per: 1h", "per: 1h, algorithm: token_bucket"), "a source that is slow": nil} {
		synctest.Test(t, func(t *testing.T) {
			cache := filepath.Join(t.TempDir(), "cache")
			s := newFakeSource(ratedFile(3, 30))
			b, _ := openSource(t, s, BookOptions{Cache: cache})
			s.next <- ratedFile(4, 40)
			s.next <- "rules: 5"
			time.Sleep(time.Second)
			require.EqualValues(t, 1, b.Stats().Refused)
			require.NoError(t, b.Close())
			info, err := os.Stat(cache)
			require.NoError(t, err)
			require.EqualValues(t, 0o600, info.Mode())

			s = &fakeSource{make(chan any, 10)}
			if first != nil {
				s.next <- first
			}
			began := time.Now()
			b, log := openSource(t, s, BookOptions{Cache: cache})
			require.LessOrEqual(t, time.Since(began), cacheWait, about)
			require.EqualValues(t, 40, rateOf(b), about)
			require.Error(t, b.Stats().LastError, about)
			require.Equal(t, 1, log.count("the rules were refused"), about)

			s.next <- ratedFile(4, 40)
			time.Sleep(time.Second)
			require.NoError(t, b.Stats().LastError, about)
			require.EqualValues(t, 1, b.Stats().Loads)
			s.next <- ratedFile(5, 50)
			time.Sleep(time.Second)
			require.EqualValues(t, 50, rateOf(b), about)
			require.NoError(t, b.Close())
		})
	}
}

func TestBookWithoutCacheWaitsLongerForSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeSource{make(chan any, 10)}
		time.AfterFunc(2*cacheWait, func() { s.next <- ratedFile(1, 10) })
		b, _ := openSource(t, s, BookOptions{Cache: filepath.Join(t.TempDir(), "cache")})
		require.EqualValues(t, 10, rateOf(b), "there is no cache yet")
		require.NoError(t, b.Close())
	})
}

func TestInvalidCacheIsRefused(t *testing.T) {
	n, cache := startNode(t), filepath.Join(t.TempDir(), "cache")
	down := errors.New("down")
	start := func(name string) error {
		b, err := OpenSource(t.Context(), n, renamed{newFakeSource(down), name}, BookOptions{Cache: cache, Logger: slog.New(slog.DiscardHandler)})
		if err == nil {
			require.NoError(t, b.Close())
		}
		return err
	}
	err := start("a")
	require.ErrorIs(t, err, down)
	require.ErrorIs(t, err, os.ErrNotExist)

	b, _ := openSource(t, renamed{newFakeSource(ratedFile(1, 10)), "a"}, BookOptions{Cache: cache})
	require.NoError(t, b.Close())
	require.NoError(t, start("a"))
	require.ErrorContains(t, start("b"), "the cache "+cache+" has rules of a: give each source its own file")
	good, err := os.ReadFile(cache)
	require.NoError(t, err)
	for _, damaged := range []string{"", string(good[:len(good)-1]), string(good) + " ", ratedFile(1, 10), cacheMark + "\n", cacheMark + "{}\n" + ratedFile(1, 10)} {
		write(t, cache, damaged)
		require.ErrorContains(t, start("a"), "the cache "+cache+" is damaged: remove it")
	}
}

// renamed is a source with another name.
type renamed struct {
	Source
	name string
}

func (r renamed) Name() string { return r.name }

func TestUnwritableCacheIsLogged(t *testing.T) {
	cache := filepath.Join(t.TempDir(), "none", "cache")
	b, log := openSource(t, newFakeSource(ratedFile(1, 10)), BookOptions{Cache: cache})
	require.EqualValues(t, 10, rateOf(b))
	require.True(t, log.contains("cannot keep the rules in their cache"))
}

func TestWriteFileLeavesNoOtherFile(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "cache.new"), "of a killed process")
	require.NoError(t, writeFile(filepath.Join(dir, "cache"), []byte("text")))
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.NoError(t, os.Remove(filepath.Join(dir, "cache")))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "cache"), 0o700))
	require.Error(t, writeFile(filepath.Join(dir, "cache"), []byte("text")))
	files, err = os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 1)
}
