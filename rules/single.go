package rules

import "time"

// Single returns a Rule without a file. Every request meets the Rule and costs a unit. The Rule has a
// Queue and no Limits. The key of a request is the address of the client or, if byUser is true, the
// User. If byUser is true, a request without a User has the address as its key, and no User can have
// the same key.
func Single(name string, byUser bool, queue time.Duration) *Rule {
	r := &Rule{
		Name: name, By: keyNames[fromClient], Cost: "1", Queue: queue, methods: everyMethod,
		key: key{parts: []part{{from: fromClient}}, ipv6: defaultIPv6}, cost: cost{fixed: 1},
	}
	if byUser {
		r.By, r.key.parts[0].from, r.key.lacking = keyNames[fromUser], fromUser, unnamed
	}
	return r
}
