package weirotel_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/weir-go/weir"
	weirotel "github.com/weir-go/weir/contrib/otel"
	"github.com/weir-go/weir/internal/testnode"
)

// provider returns a provider that samples spans with a sampled parent and spans without
// a parent.
func provider(t testing.TB, options ...sdktrace.TracerProviderOption) (*sdktrace.TracerProvider, *tracetest.InMemoryExporter) {
	exporter := tracetest.NewInMemoryExporter()
	p := sdktrace.NewTracerProvider(append(options, sdktrace.WithSyncer(exporter))...)
	t.Cleanup(func() { require.NoError(t, p.Shutdown(context.Background())) })
	return p, exporter
}

// pair starts two nodes that are connected over the loopback interface. The first node sends the
// requests.
func pair(t testing.TB, tracers ...weir.Tracer) []*testnode.Node {
	t.Helper()
	return testnode.Fleet(t, 2, func(i int, cfg *weir.Config) { cfg.Timeout, cfg.Tracer = time.Minute, tracers[i] })
}

// attributesOf returns the attributes of a span or an event by name.
func attributesOf(attributes []attribute.KeyValue) map[string]any {
	m := make(map[string]any)
	for _, a := range attributes {
		m[string(a.Key)] = a.Value.AsInterface()
	}
	return m
}

func TestSpanOfOwnerIsChildOfAsker(t *testing.T) {
	asking, asked := provider(t)
	serving, served := provider(t)
	nodes := pair(t, weirotel.NewTracer(asking), weirotel.NewTracer(serving))
	l := testnode.Limiter(t, nodes[0], weir.Limit{Name: "logins", Rate: 1, Per: time.Hour})
	key := testnode.KeyOf(t, l, nodes[1])
	for _, outcome := range []string{"allowed", "denied"} {
		asked.Reset()
		served.Reset()
		ctx, root := asking.Tracer("test").Start(t.Context(), "request")
		_, err := l.Allow(ctx, key)
		require.NoError(t, err)
		root.End()

		mine := asked.GetSpans()
		require.Len(t, mine, 2)
		check := mine[0]
		require.Equal(t, []any{"weir.check", trace.SpanKindClient, root.SpanContext().SpanID()}, []any{check.Name, check.SpanKind, check.Parent.SpanID()})
		require.Equal(t, map[string]any{
			"weir.operation": "take", "weir.outcome": outcome, "weir.limit": "logins", "weir.source": "forwarded",
			"weir.units": int64(1), "weir.member": nodes[1].Self().Name, "weir.hops": int64(1),
		}, attributesOf(check.Attributes))
		require.Len(t, check.Events, 1)
		require.Equal(t, "weir.hop", check.Events[0].Name)
		hop := attributesOf(check.Events[0].Attributes)
		require.Equal(t, nodes[1].Self().Name, hop["weir.member"])
		require.Positive(t, hop["weir.took_seconds"])

		theirs := served.GetSpans()
		require.Len(t, theirs, 1)
		serve := theirs[0]
		require.Equal(t, []any{"weir.serve", trace.SpanKindServer, check.SpanContext.WithRemote(true)}, []any{serve.Name, serve.SpanKind, serve.Parent})
		require.False(t, serve.StartTime.Before(check.StartTime))
		require.False(t, serve.EndTime.After(check.EndTime))
		require.Equal(t, map[string]any{
			"weir.operation": "take", "weir.outcome": outcome, "weir.source": "owner",
			"weir.units": int64(1), "weir.member": nodes[0].Self().Name, "weir.hops": int64(0),
		}, attributesOf(serve.Attributes))
		require.NotContains(t, fmt.Sprint(mine, theirs), key)
	}
}

func TestUnsampledTraceMakesNoSpan(t *testing.T) {
	p, exported := provider(t)
	never, _ := provider(t, sdktrace.WithSampler(sdktrace.NeverSample()))
	tracer := weirotel.NewTracer(p)
	nodes := pair(t, tracer, tracer)
	l := testnode.Limiter(t, nodes[0], weir.Limit{Name: "logins", Rate: 100, Per: time.Hour, NoLeases: true})
	unsampled, root := never.Tracer("test").Start(t.Context(), "request")
	for _, ctx := range []context.Context{t.Context(), unsampled} {
		for _, owner := range nodes {
			_, err := l.Allow(ctx, testnode.KeyOf(t, l, owner))
			require.NoError(t, err)
		}
	}
	root.End()
	require.Empty(t, exported.GetSpans())
}

// If the sampler of the provider does not sample a span, although its parent is sampled,
// the asked member receives no trace.
func TestUnsampledCheckSendsNoTrace(t *testing.T) {
	always, exported := provider(t)
	never, none := provider(t, sdktrace.WithSampler(sdktrace.NeverSample()))
	nodes := pair(t, weirotel.NewTracer(never), weirotel.NewTracer(always))
	l := testnode.Limiter(t, nodes[0], weir.Limit{Name: "logins", Rate: 100, Per: time.Hour})
	ctx, root := always.Tracer("test").Start(t.Context(), "request")
	_, err := l.Allow(ctx, testnode.KeyOf(t, l, nodes[1]))
	require.NoError(t, err)
	root.End()
	require.Empty(t, none.GetSpans())
	require.Len(t, exported.GetSpans(), 1, "the test's own")
}

func TestSpanHasNamesOfLimitsAndDenials(t *testing.T) {
	p, exported := provider(t)
	nodes := pair(t, weirotel.NewTracer(p), nil)
	narrow := testnode.Limiter(t, nodes[0], weir.Limit{Name: "narrow", Rate: 1, Per: time.Hour})
	wide := testnode.Limiter(t, nodes[0], weir.Limit{Name: "wide", Rate: 10, Per: time.Hour})
	asks := []weir.Ask{
		{Limiter: wide, Key: testnode.KeyOf(t, wide, nodes[1]), Units: 3}, {Limiter: narrow, Key: testnode.KeyOf(t, narrow, nodes[1])},
	}
	ctx, root := p.Tracer("test").Start(t.Context(), "request")
	for range 2 {
		_, err := nodes[0].AllowAll(ctx, asks...)
		require.NoError(t, err)
	}
	root.End()
	spans := exported.GetSpans()
	require.Len(t, spans, 3)
	require.Equal(t, map[string]any{
		"weir.operation": "take", "weir.outcome": "denied", "weir.limits": []string{"wide", "narrow"}, "weir.denied_by": []string{"narrow"},
		"weir.source": "forwarded", "weir.units": int64(4), "weir.member": nodes[1].Self().Name, "weir.hops": int64(1),
	}, attributesOf(spans[1].Attributes))
	require.NotContains(t, attributesOf(spans[0].Attributes), "weir.denied_by")
}

func TestSpanOfOutageContainsError(t *testing.T) {
	p, exported := provider(t)
	ctx, root := p.Tracer("test").Start(t.Context(), "request")
	defer root.End()
	span := weirotel.NewTracer(p).Outgoing(ctx)
	span.Hopped(weir.HopEvent{To: "other", Err: context.DeadlineExceeded, Took: time.Second})
	span.End(weir.TraceEvent{Operation: "take", Outcome: "unanswered", Err: context.Canceled})
	spans := exported.GetSpans()
	require.Equal(t, sdktrace.Status{Code: codes.Error, Description: "context canceled"}, spans[0].Status)
	require.Equal(t, "context deadline exceeded", attributesOf(spans[0].Events[0].Attributes)["error.message"])
}
