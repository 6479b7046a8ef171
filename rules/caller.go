package rules

import "slices"

// MatchCaller appends to dst the rules that requests of the caller of r can meet, in the order of the file,
// whatever the method, host, path and header of r. It also appends rules that are Off. If the caller is exempt,
// no rule is appended.
func (s *Set) MatchCaller(r *Request, dst []*Rule) []*Rule {
	if exempts(&s.exempt, r) {
		return dst
	}
	m := s.begin(r, nil)
	for _, rule := range s.rules {
		if (rule.tiers == 0 || rule.tiers&m.tier != 0) && rule.When.Clients.admits(r) &&
			!slices.ContainsFunc(rule.When.Not, func(e Exception) bool {
				return len(e.Methods)+len(e.Hosts)+len(e.Paths)+len(e.Headers) == 0 && e.excludes(&m)
			}) {
			dst = append(dst, rule)
		}
	}
	return dst
}

// OwnKey returns the key of a request under the rule if the key identifies the caller: each part is the address,
// user or API key of the caller, or the address in place of a missing user or API key. ok is false if other
// callers may have the same key, such as with global, if the caller may choose the key, as with a header field, or
// if the rule does not apply because the request lacks a part of the key.
func (r *Rule) OwnKey(req *Request) (key string, ok bool) {
	for _, p := range r.key.parts {
		text := ""
		switch p.from {
		case fromClient:
		case fromUser:
			text = req.User
		case fromAPIKey:
			text = req.APIKey
		default:
			return "", false
		}
		if text == "" && (r.key.lacking == together || !req.Client.IsValid()) {
			return "", false
		}
	}
	return r.Key(req)
}
