package rules_test

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/rules"
)

func ExampleParse() {
	set, err := rules.Parse("rules.yaml", []byte(`
rules:
  - name: login
    match: {method: POST, path: /login}
    key: ip
    limit: {rate: 5, per: 1m}
  - name: everyone
    key: global
    limit: {rate: 20000, per: 1s}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	request := rules.Request{Method: "POST", Path: "/login", Client: netip.MustParseAddr("192.0.2.1")}
	for _, rule := range set.Match(&request, nil) {
		key, _ := rule.Key(&request)
		fmt.Printf("%s: %q has %s\n", rule.Name, key, rules.Describe(rule.Limits[0].ForTier(request.Tier)))
	}
	// Output:
	// login: "192.0.2.1" has 5 per 1m, sliding_window, majority_share
	// everyone: "" has 20000 per 1s, sliding_window, majority_share
}

func ExampleParse_mistakes() {
	_, err := rules.Parse("rules.yaml", []byte(`
rules:
  - name: login
    key: ip
    limit: {rate: 0, pre: 1m}
`))
	fmt.Println(err)
	// Output:
	// rules.yaml:5:12: per is missing
	// rules.yaml:5:19: rate is 0: use 1 to 1000000000000
	// rules.yaml:5:22: unknown field "pre": did you mean "per"?
}

// A program that is not an HTTP server checks the limits of each rule that a request meets.
func Example() {
	ctx := context.Background()
	node, err := weir.Start(ctx, weir.Config{})
	if err != nil {
		panic(err)
	}
	defer node.Close()
	set, err := rules.Parse("rules.yaml", []byte(`
rules:
  - name: jobs
    match: {method: POST, path: /jobs}
    key: user
    limit: {rate: 1, per: 1h}
`))
	if err != nil {
		panic(err)
	}
	book, err := rules.Static(node, set) // or rules.Open, to follow a file
	if err != nil {
		panic(err)
	}
	defer book.Close()

	for range 2 {
		request := rules.Request{Method: "POST", Path: "/jobs", User: "ada"}
		now := book.Current()
		for _, rule := range now.Match(&request, nil) {
			key, ok := rule.Key(&request)
			for i := range rule.Limits {
				if !ok {
					break // the rule does not apply to this request
				}
				d, _ := now.Limiter(&rule.Limits[i], request.Tier, key).Allow(ctx, key)
				fmt.Println(rule.Name, d.Allowed)
			}
		}
	}
	// Output:
	// jobs true
	// jobs false
}
