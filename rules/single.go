package rules

import "time"

// Single returns a Rule without a file. Every request meets it and costs a unit. The Rule has a
// Queue and no Limits. Its key is the address of the client or, if byUser is true, the User of
// the request. If byUser is true, the key of a request without a User is its address, and no
// User can have the same key.
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
