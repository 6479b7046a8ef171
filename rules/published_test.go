package rules

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/publish"
	"github.com/weir-go/weir/internal/strictyaml"
	"github.com/weir-go/weir/internal/testenv"
	"github.com/weir-go/weir/weirtest"
)

// textCluster is a cluster in virtual time whose nodes have a Book each.
type textCluster struct {
	*weirtest.Cluster
	t     *testing.T
	books map[string]*Book
	logs  map[string]*journal
}

func newTextCluster(t *testing.T) *textCluster {
	c, err := weirtest.NewCluster(t.Context(), weirtest.Options{Config: weir.Config{Logger: slog.New(slog.DiscardHandler)}})
	require.NoError(t, err)
	all := &textCluster{c, t, make(map[string]*Book), make(map[string]*journal)}
	for _, name := range c.Names() {
		all.open(name, ratedFile(1, 10))
	}
	return all
}

// open opens the Book of a node.
func (c *textCluster) open(name, text string) {
	b := newBook(c.Node(name), c.Node(name), nil)
	c.logs[name] = new(journal)
	b.log = slog.New(slog.NewTextHandler(c.logs[name], nil))
	require.NoError(c.t, b.enforce(mustParse(c.t, text)))
	b.start(func(context.Context) {})
	c.books[name] = b
}

func (c *textCluster) close() {
	for _, b := range c.books {
		require.NoError(c.t, b.Close())
	}
	require.NoError(c.t, c.Close())
}

// put publishes a text from a node.
func (c *textCluster) put(name, text string, by string) {
	c.t.Helper()
	_, err := c.books[name].Publish(mustParse(c.t, text), Control{By: by})
	require.NoError(c.t, err)
}

// requireRate checks that the rules of all nodes, or of the named nodes, have the given rate.
func (c *textCluster) requireRate(rate int, names ...string) {
	c.t.Helper()
	if names == nil {
		names = c.Names()
	}
	for _, name := range names {
		require.EqualValues(c.t, rate, rateOf(c.books[name]), "%s %+v", name, c.books[name].Stats().RefusedText)
	}
}

// published returns the number of heads and of chunks on a node.
func (c *textCluster) published(name string) (heads, chunks int) {
	all, _ := c.Node(name).Published("rules/")
	for _, v := range all {
		if strings.HasPrefix(v.Name, headPrefix) {
			heads++
		} else {
			chunks++
		}
	}
	return heads, chunks
}

func inTextCluster(t *testing.T, play func(t *testing.T, c *textCluster)) {
	synctest.Test(t, func(t *testing.T) {
		c := newTextCluster(t)
		defer c.close()
		time.Sleep(time.Minute)
		play(t, c)
	})
}

func TestPublishedTextReachesAllNodesInASecond(t *testing.T) {
	inTextCluster(t, func(t *testing.T, c *textCluster) {
		got, err := c.books["a"].Publish(mustParse(t, ratedFile(2, 20)), Control{By: "jo", Reason: "twice the load"})
		require.NoError(t, err)
		require.Equal(t, hashOf([]byte(ratedFile(2, 20))), got.Hash)
		c.requireRate(20, "a")
		time.Sleep(time.Second)
		c.requireRate(20)
		for name, b := range c.books {
			s := b.Stats()
			require.Equal(t, &got, s.Published, name)
			require.Equal(t, []any{"jo", "twice the load", uint64(2), got.Hash}, []any{s.Published.By, s.Published.Reason, s.Version, s.Hash}, name)
			require.Nil(t, s.RefusedText, name)
			require.EqualValues(t, 2, s.Loads, name)
		}
		time.Sleep(time.Minute)
		require.EqualValues(t, 2, c.books["b"].Stats().Loads, "parsed once")

		large := largeText(3, testenv.PickFull(t, 200_000, strictyaml.MaxBytes))
		c.put("b", string(large), "jo")
		time.Sleep(time.Second)
		for name, b := range c.books {
			require.Equal(t, hashOf(large), b.Stats().Hash, name)
		}
		c.put("c", ratedFile(4, 30), "jo")
		time.Sleep(time.Second)
		c.requireRate(30)
		for _, name := range c.Names() {
			heads, chunks := c.published(name)
			require.Equal(t, []int{1, 1}, []int{heads, chunks}, "replaced texts are withdrawn")
		}
	})
}

func TestOneOfConcurrentTextsWins(t *testing.T) {
	for about, texts := range map[string][2]string{
		"higher version first": {ratedFile(3, 30), ratedFile(2, 20)},
		"higher version last":  {ratedFile(2, 20), ratedFile(3, 30)},
		"same version":         {ratedFile(2, 20), ratedFile(2, 30)},
		"same text":            {ratedFile(2, 30), ratedFile(2, 30)},
	} {
		t.Run(about, func(t *testing.T) {
			inTextCluster(t, func(t *testing.T, c *textCluster) {
				c.put("a", texts[0], "jo")
				time.Sleep(time.Nanosecond)
				c.put("b", texts[1], "al")
				time.Sleep(2 * time.Second)
				c.requireRate(30)
				for name, b := range c.books {
					require.Nil(t, b.Stats().RefusedText, name)
					require.Equal(t, c.books["a"].Stats().Published, b.Stats().Published, name)
					heads, chunks := c.published(name)
					require.Equal(t, []int{1, 1}, []int{heads, chunks}, name)
				}
			})
		})
	}
}

func TestConcurrentPublishersAgree(t *testing.T) {
	inTextCluster(t, func(t *testing.T, c *textCluster) {
		var all sync.WaitGroup
		for i := range 30 {
			b := c.books[c.Names()[i%3]]
			set := mustParse(t, ratedFile(2+i/2, 10+i))
			all.Go(func() { _, _ = b.Publish(set, Control{By: "jo"}) }) // a version may be too low by now
		}
		all.Wait()
		time.Sleep(5 * time.Second)
		want := c.books["a"].Stats()
		require.EqualValues(t, 16, want.Version)
		for name, b := range c.books {
			require.Equal(t, want.Hash, b.Stats().Hash, name)
			require.Nil(t, b.Stats().RefusedText, name)
			heads, chunks := c.published(name)
			require.Equal(t, []int{1, 1}, []int{heads, chunks}, name)
		}
	})
}

func TestOtherAlgorithmAtSameVersionIsReported(t *testing.T) {
	inTextCluster(t, func(t *testing.T, c *textCluster) {
		c.put("a", strings.ReplaceAll(ratedFile(2, 20), "per: 1h", "per: 1h, algorithm: token_bucket"), "jo")
		time.Sleep(time.Nanosecond)
		c.put("b", ratedFile(2, 30), "al")
		time.Sleep(2 * time.Second)
		c.requireRate(20, "a") // a node has one algorithm for each limit and version
		c.requireRate(30, "b")
		require.ErrorContains(t, c.books["a"].Stats().RefusedText.Err, "a new algorithm needs a version above 2")
		c.put("c", ratedFile(3, 40), "jo")
		time.Sleep(time.Second)
		c.requireRate(40)
	})
}

func TestSidesOfSplitHaveTheirOwnText(t *testing.T) {
	inTextCluster(t, func(t *testing.T, c *textCluster) {
		c.Cut([]string{"a", "b"}, []string{"c"})
		time.Sleep(10 * time.Second)
		c.put("a", ratedFile(3, 30), "jo")
		c.put("c", ratedFile(2, 20), "al")
		time.Sleep(time.Second)
		c.requireRate(30, "a", "b")
		c.requireRate(20, "c")
		c.Heal()
		time.Sleep(10 * time.Second)
		c.requireRate(30)
		heads, chunks := c.published("c")
		require.Equal(t, []int{1, 1}, []int{heads, chunks})
	})
}

func TestJoinersAdoptPublishedText(t *testing.T) {
	inTextCluster(t, func(t *testing.T, c *textCluster) {
		c.put("a", ratedFile(2, 20), "jo")
		time.Sleep(time.Second)
		c.Kill("b")
		require.NoError(t, c.books["b"].Close())
		time.Sleep(time.Minute)
		for name, want := range map[string]int{"b": 20, "d": 20, "e": 50} {
			_, err := c.Start(t.Context(), name)
			require.NoError(t, err)
			text := ratedFile(1, 10)
			if name == "e" {
				text = ratedFile(5, 50) // a higher version of the source
			}
			c.open(name, text)
			time.Sleep(10 * time.Second)
			c.requireRate(want, name)
			require.Nil(t, c.books[name].Stats().RefusedText)
		}
		c.requireRate(20, "a", "c")
	})
}

func TestFullStoreRefusesWholeText(t *testing.T) {
	n := startNode(t)
	b := staticBook(t, n, ratedFile(1, 10))
	value := make([]byte, publish.MaxValue)
	var err error
	for i := 0; err == nil; i++ {
		err = n.Publish(fmt.Sprintf("x%04d", i), 1, value)
	}
	require.ErrorIs(t, err, publish.ErrFull)
	for i := range 4 { // the large text needs more values than these
		require.NoError(t, n.Publish(fmt.Sprintf("x%04d", i), 0, nil))
	}
	large := mustParse(t, string(largeText(2, 400_000)))
	_, err = b.Publish(large, Control{})
	require.ErrorIs(t, err, publish.ErrFull)
	all, _ := n.Published("rules/")
	require.Empty(t, all)
	require.EqualValues(t, 10, rateOf(b))
	require.Nil(t, b.Stats().Published)

	for i := range 100 {
		require.NoError(t, n.Publish(fmt.Sprintf("x%04d", i), 0, nil))
	}
	_, err = b.Publish(large, Control{})
	require.NoError(t, err, "the same text, once there is room")
	require.EqualValues(t, 2, b.Stats().Version)
}

// publishHead publishes a head with the given chunks.
func publishHead(t *testing.T, n *weir.Node, h textHead, chunks ...[]byte) {
	for i, chunk := range chunks {
		require.NoError(t, n.Publish(h.chunkName(i), 0, chunk))
	}
	value, err := json.Marshal(h)
	require.NoError(t, err)
	require.NoError(t, n.Publish(headName(h.version), 0, value))
}

func TestIncompleteTextWaitsForItsChunks(t *testing.T) {
	inTextCluster(t, func(t *testing.T, c *textCluster) {
		_, rest, _ := strings.Cut(string(largeText(0, 100_000)), "rules:\n")
		h, chunks, err := newTextHead([]byte(ratedFile(2, 20) + rest))
		require.NoError(t, err)
		require.Greater(t, len(chunks), 1)
		h.version = 2
		publishHead(t, c.Node("a"), h, chunks[:len(chunks)-1]...)
		time.Sleep(time.Second)
		c.requireRate(10)
		for name, b := range c.books {
			require.ErrorIs(t, b.Stats().RefusedText.Err, errIncomplete, name)
			require.Zero(t, b.Stats().Refused, name)
		}
		require.NoError(t, c.Node("b").Publish(h.chunkName(len(chunks)-1), 0, chunks[len(chunks)-1]))
		time.Sleep(time.Second)
		c.requireRate(20)
		require.Nil(t, c.books["a"].Stats().RefusedText)
	})
}

func TestGarbageFromMemberIsRefused(t *testing.T) {
	inTextCluster(t, func(t *testing.T, c *textCluster) {
		c.put("a", ratedFile(2, 20), "jo")
		time.Sleep(time.Second)
		good, chunks, err := newTextHead([]byte(ratedFile(3, 30)))
		require.NoError(t, err)
		good.version = 3
		damaged := slices.Clone(chunks[0])
		damaged[5] ^= 1
		publishHead(t, c.Node("b"), good, damaged)
		bad, badChunks, err := newTextHead([]byte("secret garbage: ["))
		require.NoError(t, err)
		bad.version = 1 << 60
		publishHead(t, c.Node("b"), bad, badChunks...)
		other, otherChunks, err := newTextHead([]byte(ratedFile(4, 40)))
		require.NoError(t, err)
		other.version = 1 << 50
		publishHead(t, c.Node("b"), other, otherChunks...)
		require.NoError(t, c.Node("b").Publish(headPrefix+"garbage", 0, []byte("garbage")))
		for i := range 1000 {
			h := good
			h.ID = fmt.Sprintf("%016x", i)
			h.version = 1<<40 + uint64(i)
			publishHead(t, c.Node("c"), h)
		}
		time.Sleep(20 * time.Second)
		c.requireRate(20)
		for name, b := range c.books {
			require.ErrorContains(t, b.Stats().RefusedText.Err, "published:2: not YAML", name)
			require.EqualValues(t, 3, b.Stats().Refused, name)
			require.Equal(t, 1, c.logs[name].count("a published text of rules was refused"), name)
			require.False(t, c.logs[name].contains("secret garbage"), name)
		}
		for i := range 1000 {
			require.NoError(t, c.Node("c").Publish(headName(1<<40+uint64(i)), 0, nil))
		}
		c.put("c", ratedFile(4, 40), "al") // the head with version 1<<50 has the same chunks
		time.Sleep(time.Second)
		c.requireRate(40)
	})
}

func TestTextIsAdoptedAfterDamagedChunkIsRepaired(t *testing.T) {
	inTextCluster(t, func(t *testing.T, c *textCluster) {
		h, chunks, err := newTextHead([]byte(ratedFile(3, 30)))
		require.NoError(t, err)
		h.version = 3
		publishHead(t, c.Node("b"), h, []byte("damaged"))
		time.Sleep(time.Second)
		c.requireRate(10)
		require.ErrorContains(t, c.books["a"].Stats().RefusedText.Err, "do not have the hash")
		require.NoError(t, c.Node("c").Publish(h.chunkName(0), 0, chunks[0]))
		time.Sleep(time.Second)
		c.requireRate(30)
	})
}

func TestPublishRefusesInvalidText(t *testing.T) {
	b := staticBook(t, startNode(t), ratedFile(2, 10))
	for want, c := range map[string]struct {
		text string
		Control
	}{
		"its version is 2: raise it above 2": {ratedFile(2, 20), Control{}},
		"its version is 1":                   {ratedFile(1, 20), Control{}},
		"By has 129 bytes":                   {ratedFile(3, 20), Control{By: strings.Repeat("x", 129)}},
		"rules have no end":                  {ratedFile(3, 20), Control{Until: time.Now().Add(time.Hour)}},
	} {
		_, err := b.Publish(mustParse(t, c.text), c.Control)
		require.ErrorIs(t, err, weir.ErrInvalid)
		require.ErrorContains(t, err, want)
	}
	require.EqualValues(t, 10, rateOf(b))
}

func TestPublishReturnsReasonOfRefusal(t *testing.T) {
	n := startNode(t)
	b := staticBook(t, n, ratedFile(1, 10))
	bad, chunks, err := newTextHead([]byte("garbage of another node"))
	require.NoError(t, err)
	bad.version = 3
	publishHead(t, n, bad, chunks...)
	name := b.Current().Rules()[0].Limits[0].Name
	_, err = n.Limiter(weir.Limit{Name: name, Version: 2, Algorithm: weir.TokenBucket, Rate: 1, Per: time.Second})
	require.NoError(t, err)
	_, err = b.Publish(mustParse(t, ratedFile(2, 20)), Control{})
	require.ErrorIs(t, err, weir.ErrInvalid)
	require.ErrorContains(t, err, "version 2 was refused")
	require.ErrorContains(t, err, "this node has a limit of that Name with token_bucket")
	all, _ := n.Published("rules/")
	require.Len(t, all, 2, "the head and the chunk of the other node")
}

// While a node was away, another text has replaced that of its cache.
func TestReplacedTextOfCacheIsNotPublishedAgain(t *testing.T) {
	n, cache := startNode(t), t.TempDir()+"/cache"
	log := new(journal)
	open := func() *Book {
		b, err := OpenSource(t.Context(), n, newFakeSource(ratedFile(1, 10)), BookOptions{Cache: cache, Logger: slog.New(slog.NewTextHandler(log, nil))})
		require.NoError(t, err)
		return b
	}
	b := open()
	_, err := b.Publish(mustParse(t, ratedFile(3, 30)), Control{})
	require.NoError(t, err)
	require.NoError(t, b.Close())

	_, err = staticBook(t, n, ratedFile(3, 30)).Publish(mustParse(t, ratedFile(4, 40)), Control{})
	require.NoError(t, err)
	b = open()
	defer b.Close()
	require.EqualValues(t, 40, rateOf(b))
	require.False(t, log.contains("cannot publish the cached rules again"), log)
}

func TestPublishedTextSurvivesRestartOfAllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTextCluster(t)
		defer func() { c.close() }()
		dir, sources := t.TempDir(), make(map[string]*fakeSource)
		openAll := func(text string) {
			for _, name := range c.Names() {
				if b := c.books[name]; b != nil {
					require.NoError(t, b.Close())
				}
				sources[name] = newFakeSource(text)
				c.logs[name] = new(journal)
				log := slog.New(slog.NewTextHandler(c.logs[name], nil))
				b, err := OpenSource(t.Context(), c.Node(name), sources[name], BookOptions{Cache: dir + "/" + name, Logger: log})
				require.NoError(t, err)
				c.books[name] = b
			}
		}
		restart := func(text string) {
			for _, name := range c.Names() {
				c.Kill(name)
			}
			for _, name := range []string{"a", "b", "c"} {
				_, err := c.Start(t.Context(), name)
				require.NoError(t, err)
			}
			openAll(text)
		}
		openAll(ratedFile(1, 10))
		time.Sleep(time.Second)
		c.put("a", ratedFile(3, 30), "jo")
		time.Sleep(time.Second)
		published := c.books["b"].Stats().Published
		for range 2 {
			restart(ratedFile(2, 20))
			c.requireRate(30)
			time.Sleep(10 * time.Second)
			c.requireRate(30)
			for name, b := range c.books {
				s := b.Stats()
				require.Equal(t, published, s.Published, name)
				require.NoError(t, s.LastError, name)
				require.Nil(t, s.RefusedText, name)
				heads, chunks := c.published(name)
				require.Equal(t, []int{1, 1}, []int{heads, chunks}, name)
			}
		}
		// The source has a higher version from now on.
		for _, s := range sources {
			s.next <- ratedFile(4, 40)
		}
		time.Sleep(time.Second)
		c.requireRate(40)
		require.Nil(t, c.books["a"].Stats().Published)
		restart(ratedFile(4, 40))
		time.Sleep(10 * time.Second)
		c.requireRate(40)
		c.put("b", ratedFile(5, 50), "jo")
		time.Sleep(time.Second)
		c.requireRate(50)
		for _, s := range sources {
			s.next <- ratedFile(5, 51)
		}
		time.Sleep(time.Second)
		c.requireRate(50)
		require.ErrorContains(t, c.books["c"].Stats().LastError, "a published text with this version is in force")
		require.Equal(t, 1, c.logs["c"].count("the rules were refused"))
	})
}

func TestDamagedCacheOfPublishedTextIsReported(t *testing.T) {
	path := t.TempDir() + "/cache"
	require.NoError(t, os.WriteFile(path+publishedSuffix, []byte("garbage"), 0o600))
	s := newFakeSource(ratedFile(1, 10))
	log := new(journal)
	b, err := OpenSource(t.Context(), startNode(t), s, BookOptions{Cache: path, Logger: slog.New(slog.NewTextHandler(log, nil))})
	require.NoError(t, err)
	defer b.Close()
	require.True(t, log.contains("cannot publish the cached rules again"))
	require.EqualValues(t, 10, rateOf(b))
}
