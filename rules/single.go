package rules

import "time"

// Single returns a Rule that no file has: every request meets it and costs one unit. It
// has a Queue and no Limits. Its key is the request's User with byUser, and else the
// client's address, which also stands for a User that is empty.
func Single(name string, byUser bool, queue time.Duration) *Rule {
	r := &Rule{
		Name: name, By: keyNames[fromClient], Cost: "1", Queue: queue, methods: everyMethod,
		key: key{parts: []part{{from: fromClient}}, ipv6: defaultIPv6}, cost: cost{fixed: 1},
	}
	if byUser {
		r.By, r.key.parts[0].from = keyNames[fromUser], fromUser
	}
	return r
}
