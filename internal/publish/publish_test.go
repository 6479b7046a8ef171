package publish

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/cluster/clustertest"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// circle is a group of Publishers. A message between them is handled within the same call.
type circle struct {
	nodes []*Publisher
	log   bytes.Buffer

	mu    sync.Mutex
	hears [][]bool           // the connections; each change replaces the slices, because views refer to them
	views map[int]*view.View // the view of each node with the present connections
	asked []int              // number of questions to each node
	told  int                // number of messages
}

// newCircle returns n members that are all connected to each other.
func newCircle(n int) *circle {
	c := &circle{asked: make([]int, n)}
	for range n {
		c.hears = append(c.hears, slices.Repeat([]bool{true}, n))
		c.nodes = append(c.nodes, New(Config{Log: slog.New(slog.NewTextHandler(&c.log, nil)), Env: &env.Env{Clock: env.NewClock(nil)}}))
	}
	c.show()
	return c
}

func (c *circle) cut(a, b int) { c.link(a, b, false) }

// link connects or disconnects two nodes.
func (c *circle) link(a, b int, up bool) {
	defer c.show()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hears = slices.Clone(c.hears)
	c.hears[a], c.hears[b] = slices.Clone(c.hears[a]), slices.Clone(c.hears[b])
	c.hears[a][b], c.hears[b][a] = up, up
	c.views = nil
}

// questions returns the number of questions to each node.
func (c *circle) questions() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.asked)
}

// show stores the present view of each node in its Env.
func (c *circle) show() {
	for i, n := range c.nodes {
		n.cfg.Env.Store(c.view(i))
	}
}

func (c *circle) view(self int) *view.View {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.views[self]; v != nil {
		return v
	}
	if c.views == nil {
		c.views = make(map[int]*view.View)
	}
	v := &cluster.View{Self: self, Connected: clustertest.Rows(c.hears), Direct: c.hears[self]}
	for i := range c.nodes {
		v.Members = append(v.Members, cluster.Member{Name: c.name(i), Announced: cluster.Serving, Peer: peer{c: c, from: self, to: i}})
	}
	c.views[self] = view.New(0, v, view.Terms{}, nil)
	return c.views[self]
}

func (c *circle) name(i int) string { return string(rune('a' + i)) }

// formatValues returns the values of a node, like "a=1 b=2 ".
func (c *circle) formatValues(i int) (s string) {
	for _, p := range valuesOf(&c.nodes[i].Store) {
		s += fmt.Sprintf("%s=%s ", p.Name, p.Value)
	}
	return s
}

// peer passes the messages of one node to another node.
type peer struct {
	cluster.Peer
	c        *circle
	from, to int
}

func (p peer) Send(request []byte) {
	p.c.mu.Lock()
	p.c.told++
	p.c.mu.Unlock()
	if err := p.c.nodes[p.to].Serve(request[wire.HeaderBytes:], p.c.name(p.from)); err != nil {
		panic(err)
	}
}

func (p peer) Ask(_ context.Context, request, _ []byte, _ time.Duration) ([]byte, error) {
	p.c.mu.Lock()
	p.c.asked[p.to]++
	p.c.mu.Unlock()
	q, err := ParseQuestion(request[wire.HeaderBytes:])
	if err != nil {
		return nil, err
	}
	return p.c.nodes[p.to].Answer(wire.AppendResponse(nil, wire.Done, 0), &q, p.c.name(p.from)), nil
}

// Each node has a Publisher. A value that is put on a node reaches all nodes.
func Example() {
	c := newCircle(3)
	_ = c.nodes[0].Put("rules", 0, []byte("60 per minute"))
	_ = c.nodes[1].Put("rules", 0, []byte("90 per minute"))
	values, revision := Values[Item](&c.nodes[2].Store, "rul")
	fmt.Printf("%s %s %d\n", values[0].Name, values[0].Value, revision)
	fmt.Println(c.nodes[1].Put("rules", 5, []byte("1 per minute")) != nil)
	_ = c.nodes[2].Put("rules", 0, nil)
	values, _ = Values[Item](&c.nodes[0].Store, "")
	fmt.Println(len(values))
	// Output:
	// rules 90 per minute 3
	// true
	// 0
}

func publication(name string, version uint64, value string) []byte {
	return appendEntries(nil, []entry{{Item: Item{name, version, []byte(value)}}}, 0)
}

func TestNewsReachMembersBeyondTheSender(t *testing.T) {
	for about, links := range map[string]struct {
		cut  [][2]int
		told int
	}{
		"all connected":                {nil, 3},
		"one member with one neighbor": {[][2]int{{0, 1}, {0, 2}}, 3},
		"line":                         {[][2]int{{0, 2}, {0, 3}, {1, 3}}, 3},
		"ring":                         {[][2]int{{0, 2}, {1, 3}}, 5},
	} {
		t.Run(about, func(t *testing.T) {
			c := newCircle(4)
			for _, link := range links.cut {
				c.cut(link[0], link[1])
			}
			require.NoError(t, c.nodes[0].Put("x", 0, []byte("1")))
			for i := range c.nodes {
				require.Equal(t, "x=1 ", c.formatValues(i), c.name(i))
			}
			require.Equal(t, links.told, c.told)
			require.NoError(t, c.nodes[0].Serve(publication("x", 1, "1"), "d"))
			require.Equal(t, links.told, c.told, "known values are not sent")
		})
	}
}

func TestRunFindsLostValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(3)
		c.cut(0, 2)
		c.cut(1, 2)
		for i, p := range c.nodes {
			go p.Run(t.Context(), CompareEvery+time.Duration(i))
		}
		require.NoError(t, c.nodes[0].Put("x", 0, []byte("1")))
		large := bytes.Repeat([]byte("v"), MaxValue)
		for i := range 40 { // too many for one answer
			require.NoError(t, c.nodes[0].Put(fmt.Sprintf("y%02d", i), 0, large))
		}
		time.Sleep(2 * CompareEvery)
		require.Equal(t, c.formatValues(0), c.formatValues(1))
		require.Empty(t, c.formatValues(2))

		c.link(0, 2, true)
		c.link(1, 2, true)
		c.nodes[2].Changed()
		c.nodes[2].Changed()
		synctest.Wait()
		require.Equal(t, c.formatValues(0), c.formatValues(2), "a node compares with a new neighbor at once")

		// A value that was sent to no member is found when the members compare in turn.
		c.nodes[1].merge([]entry{{Item: Item{"z", 1, []byte("2")}}}, 0, math.MaxUint64)
		time.Sleep(3 * CompareEvery)
		synctest.Wait()
		for i := range c.nodes {
			require.Contains(t, c.formatValues(i), "z=2 ")
		}
		time.Sleep(time.Minute) // all nodes rest
		c.nodes[1].merge([]entry{{Item: Item{"z", 2, []byte("3")}}}, 0, math.MaxUint64)
		time.Sleep(2*CompareEvery + time.Millisecond)
		synctest.Wait()
		for i := range c.nodes {
			require.Contains(t, c.formatValues(i), "z=3 ")
		}
	})
}

func TestRunComparesWithEachMemberInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(4)
		go c.nodes[0].Run(t.Context(), CompareEvery)
		time.Sleep(CompareEvery / 2)
		require.Equal(t, []int{0, 0, 0, 0}, c.questions())
		c.nodes[0].Changed()
		synctest.Wait()
		require.Equal(t, []int{0, 1, 1, 1}, c.questions(), "at once")
		time.Sleep(3 * CompareEvery)
		require.Equal(t, []int{0, 2, 2, 2}, c.questions(), "one question in each period")
		time.Sleep(3 * compareRested)
		require.Equal(t, []int{0, 3, 3, 3}, c.questions(), "one question in each period of a node that rests")
		c.cut(0, 2)
		c.nodes[0].Changed()
		synctest.Wait()
		require.Equal(t, []int{0, 3, 3, 3}, c.questions())
		c.link(0, 2, true)
		c.nodes[0].Changed()
		synctest.Wait()
		require.Equal(t, []int{0, 3, 4, 3}, c.questions(), "the member is connected again")
	})
}

func TestRestingNodeComparesWithDifferingMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(2)
		go c.nodes[0].Run(t.Context(), CompareEvery)
		time.Sleep(CompareEvery + time.Second)
		now := c.nodes[1].cfg.Env.Now()
		_, err := c.nodes[1].put(entry{Item{"name", 1, []byte("value")}, now}, now, now) // the message is lost
		require.NoError(t, err)
		c.nodes[0].Answer(nil, &Question{digests: c.nodes[1].digestsNow()}, c.name(1))
		synctest.Wait()
		require.Equal(t, "name=value ", c.formatValues(0))
	})
}

func TestLonelyNodeDeletesTombstonesDespiteChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newCircle(1).nodes[0]
		go p.Run(t.Context(), CompareEvery)
		require.NoError(t, p.Put("gone", 0, []byte("value")))
		require.NoError(t, p.Put("gone", 0, nil))
		for began := time.Now(); time.Since(began) < tombstoneFor+2*compareRested; time.Sleep(compareRested - time.Second) {
			require.NoError(t, p.Put("changes", 0, []byte("value")))
		}
		require.Zero(t, p.Stats().Tombstones)
	})
}

func TestValuesAreSortedAndSelectedByPrefix(t *testing.T) {
	c := newCircle(1)
	p := c.nodes[0]
	values, revision := Values[Item](&p.Store, "")
	require.Empty(t, values)
	for _, name := range []string{"b/2", "a", "b/1", "b", "c", "b0", "\xff", "\xff\xff"} {
		require.NoError(t, p.Put(name, 0, []byte("of "+name)))
	}
	names := func(prefix string) string {
		values, _ := Values[Item](&p.Store, prefix)
		var s []string
		for _, v := range values {
			require.Equal(t, "of "+v.Name, string(v.Value))
			s = append(s, v.Name)
		}
		require.True(t, slices.IsSorted(s))
		return strings.Join(s, " ")
	}
	require.Equal(t, "b/1 b/2", names("b/"))
	require.Equal(t, "b b/1 b/2 b0", names("b"))
	require.Equal(t, "\xff \xff\xff", names("\xff"))
	require.Equal(t, "", names("b/3"))
	require.Equal(t, "", names("a/"))
	_, after := Values[Item](&p.Store, "b/")
	require.Equal(t, revision+8, after)
	require.NoError(t, p.Put("b/1", 0, nil))
	require.Equal(t, "b/2", names("b/"))
	_, again := Values[Item](&p.Store, "b/")
	require.Greater(t, again, after)
	require.Equal(t, Stats{Values: 7, Tombstones: 1, Bytes: 14 + 7*3 + 11, Revision: again}, p.Stats())
	require.Zero(t, testing.AllocsPerRun(100, func() { Values[Item](&p.Store, "b/") }))
}

func TestPutRefusesInvalidItems(t *testing.T) {
	p := newCircle(1).nodes[0]
	require.NoError(t, p.Put("name", 5, []byte("five")))
	require.NoError(t, p.Put("name", 5, []byte("five")), "the same item again")
	require.NoError(t, p.Put("name", 5, []byte("fivf")), "greater bytes")
	require.NoError(t, p.Put(strings.Repeat("n", 256), 1, make([]byte, 4096)))
	for says, err := range map[string]error{
		"version: 4 of \"name\" is not above version 5":   p.Put("name", 4, []byte("four")),
		"version: 5 of \"name\" is not above version 5, ": p.Put("name", 5, []byte("five")),
		"name: it has 0 bytes":                            p.Put("", 1, nil),
		"name: it has 257 bytes":                          p.Put(strings.Repeat("n", 257), 1, nil),
		"value: \"name\" has 4097 bytes":                  p.Put("name", 6, make([]byte, 4097)),
		"version: 18446744073709551615 of \"name\" is a":  p.Put("name", math.MaxUint64, nil),
		"version: 9223372036854775808 of \"other\" is ab": p.Put("other", 1<<63, []byte("v")),
	} {
		require.ErrorContains(t, err, says)
	}
	require.NoError(t, p.Put("name", 0, nil), "any version can be withdrawn")

	value := []byte("mine")
	require.NoError(t, p.Put("kept", 1, value))
	value[0] = 'd'
	values, _ := Values[Item](&p.Store, "kept")
	require.Equal(t, "mine", string(values[0].Value))

	for i := range maxValues - 2 {
		require.NoError(t, p.Put(fmt.Sprint(i), 1, []byte("v")))
	}
	require.ErrorContains(t, p.Put("one more", 1, []byte("v")), "value: there is no room for \"one more\" beside 16384 values")
	require.NoError(t, p.Put("one more", 1, nil))
	require.NoError(t, p.Put("kept", 2, []byte("in its own place")))
	require.NoError(t, p.Put("0", 2, nil))
	require.NoError(t, p.Put("another", 1, []byte("v")))
}

func TestPublishedValuesMayHaveEightMegabytes(t *testing.T) {
	p := newCircle(1).nodes[0]
	for i := range maxBytes / (MaxValue + 4) {
		require.NoError(t, p.Put(fmt.Sprintf("%04d", i), 1, make([]byte, MaxValue)))
	}
	require.ErrorContains(t, p.Put("more", 1, make([]byte, MaxValue)), "there is no room for \"more\"")
}

// A node of an earlier release, or a node whose clock was set back, may hold a value with such
// a version.
func TestJoinerRefusesVersionTooFarAhead(t *testing.T) {
	c := newCircle(2)
	holder, joiner := c.nodes[0], c.nodes[1]
	for name, version := range map[string]uint64{"highest": math.MaxUint64, "ahead": uint64(time.Now().Add(48 * time.Hour).UnixNano()), "set": 5} {
		holder.merge([]entry{{Item: Item{name, version, []byte("left")}}}, 0, math.MaxUint64)
	}
	require.NoError(t, joiner.compare(t.Context(), c.view(1), 0))
	require.Equal(t, "set=left ", c.formatValues(1))
	require.Equal(t, 1, strings.Count(c.log.String(), "its version is too far ahead"), "one line for two refused versions")
	c.cut(0, 1)
	require.NoError(t, holder.Put("ahead", 0, nil), "the node that holds it can delete it")
	require.Equal(t, "highest=left set=left ", c.formatValues(0))
}
