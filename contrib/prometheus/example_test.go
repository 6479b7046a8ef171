package weirprom_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weir-go/weir"
	weirprom "github.com/weir-go/weir/contrib/prometheus"
	"github.com/weir-go/weir/rules"
)

func ExampleNew() {
	node, err := weir.Start(context.Background(), weir.Config{})
	if err != nil {
		panic(err)
	}
	defer node.Close()
	set, err := rules.Parse("rules.yaml", []byte("version: 12\nrules: [{name: per address, key: ip, limit: {rate: 2, per: 1h}}]"))
	if err != nil {
		panic(err)
	}
	book, err := rules.Static(node, set) // a service would use rules.Open
	if err != nil {
		panic(err)
	}
	defer book.Close()

	registry := prometheus.NewRegistry()
	registry.MustRegister(weirprom.New(node, book))
	metrics := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})

	limiter, err := node.Limiter(weir.Limit{Name: "calls", Algorithm: weir.FixedWindow, Rate: 2, Per: time.Hour})
	if err != nil {
		panic(err)
	}
	for range 5 {
		limiter.Allow(context.Background(), "192.0.2.1")
	}

	scrape := httptest.NewRecorder()
	metrics.ServeHTTP(scrape, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(scrape.Body.String()) {
		if strings.Contains(line, `decisions_total{`) && strings.Contains(line, `source="owner"`) || strings.HasPrefix(line, "weir_rules_in_force") {
			fmt.Print(line)
		}
	}
	// Output:
	// weir_decisions_total{outcome="allowed",source="owner"} 2
	// weir_decisions_total{outcome="denied",source="owner"} 3
	// weir_limit_decisions_total{limit="calls",outcome="allowed",source="owner"} 2
	// weir_limit_decisions_total{limit="calls",outcome="denied",source="owner"} 3
	// weir_rules_in_force 1
}
