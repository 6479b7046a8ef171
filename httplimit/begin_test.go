package httplimit

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testenv"
	"github.com/weir-go/weir/rules"
)

// event is an Exchange without a framework.
type event struct{ denied bool }

func (*event) Read(r *rules.Request)        { *r = *described("192.0.2.1") }
func (*event) Decided(*Outcome)             {}
func (*event) Field(string) string          { return "" }
func (*event) SetFields(_, values []string) {}
func (e *event) Deny(*Outcome)              { e.denied = true }

func described(ip string) *rules.Request {
	r := get("/", ip)
	m := Middleware{}
	to := m.Request(r)
	return &to
}

func TestEventHoldsUntilEnd(t *testing.T) {
	const file = "rules: [{name: r, key: ip, limit: {algorithm: in_flight, rate: 1}}]"
	for about, begin := range map[string]func(*Middleware) (*Admission, bool){
		"Begin": func(m *Middleware) (*Admission, bool) { return m.Begin(context.Background(), new(event)) },
		"BeginCheck": func(m *Middleware) (*Admission, bool) {
			o, a := m.BeginCheck(context.Background(), described("192.0.2.1"))
			return a, o.Status == 0
		},
	} {
		t.Run(about, func(t *testing.T) {
			m := newLimiter(t, file, Options{}, weir.Config{})
			first, admitted := begin(m)
			require.True(t, admitted)
			second, admitted := begin(m)
			require.False(t, admitted)
			require.Nil(t, second)
			second.End(Ended{}) // does nothing
			first.End(Ended{Status: 200})
			third, admitted := begin(m)
			require.True(t, admitted)
			first.End(Ended{Status: 200}) // a second End has no effect
			_, admitted = begin(m)
			require.False(t, admitted)
			third.End(Ended{Aborted: true})
		})
	}
}

func TestAdmissionIsNilWithoutHolds(t *testing.T) {
	m := newLimiter(t, "rules: [{name: r, key: ip, limit: {rate: 1, per: 1h}}]", Options{}, weir.Config{})
	a, admitted := m.Begin(context.Background(), new(event))
	require.True(t, admitted)
	require.Nil(t, a)
	var w http.ResponseWriter
	require.Equal(t, w, a.Wrap(w, nil))
	e := new(event)
	require.False(t, m.Serve(context.Background(), e))
	require.True(t, e.denied)
}

// plainEvent is an event that does not allocate.
type plainEvent struct{ event }

func (*plainEvent) Read(r *rules.Request) { r.Method, r.Path, r.User = "GET", "/", "ada" }

func TestServeAddsThreeAllocations(t *testing.T) {
	if testenv.Race {
		t.Skip("the race detector makes sync.Pool drop what it holds")
	}
	m := newLimiter(t, "rules: [{name: r, key: user, limit: {rate: 1000000000, per: 1h}}]", Options{}, weir.Config{})
	ctx, e := context.Background(), new(plainEvent)
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { m.Serve(ctx, e) }), 3.0)
}
