package rules

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// oneRule returns a file of a rule with the given fields, which begin on line 3.
func oneRule(fields string) string {
	return "rules:\n- name: r\n  " + strings.ReplaceAll(fields, "\n", "\n  ")
}

// numberedNames returns n different names.
func numberedNames(name string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint(name, i))
	}
	return names
}

func TestFileMayHaveMaxTiers(t *testing.T) {
	s := mustParse(t, "tiers: {"+strings.Join(numberedNames("t", maxTiers), ": {}, ")+": {}}\n"+oneRule("match: {tier: t63}\nkey: ip\nlimit: {rate: 1, per: 1s}"))
	require.Equal(t, []string{"r"}, namesOf(s, Request{Path: "/", Tier: "t63"}))
	require.Empty(t, namesOf(s, Request{Path: "/", Tier: "t62"}))
	require.Empty(t, namesOf(s, Request{Path: "/"}))
}

func TestErrorsHavePositionAndSuggestion(t *testing.T) {
	const good = "\nkey: ip\nlimit: {rate: 1, per: 1s}"
	for _, c := range []struct{ about, text, want string }{
		{"nothing", "", `rules.yaml: the file is empty`},
		{"no rules", "version: 1", `rules.yaml:1:1: rules is missing`},
		{"a misspelt field of the file", "rulse: []", "rules.yaml:1:1: unknown field \"rulse\": did you mean \"rules\"?\nrules.yaml:1:1: rules is missing"},
		{"a misspelt field of a rule", oneRule("keys: ip\nlimit: {rate: 1, per: 1s}"), "rules.yaml:2:3: key is missing\nrules.yaml:3:3: unknown field \"keys\": did you mean \"key\"?"},
		{"no name", "rules:\n- key: ip\n  limit: {rate: 1, per: 1s}", `rules.yaml:2:3: name is missing`},
		{"an empty name", "rules:\n- name: ''\n  key: ip\n  limit: {rate: 1, per: 1s}", `rules.yaml:2:9: the name is empty: use letters, digits, spaces and . _ : -`},
		{"a name that no header can show", "rules:\n- name: a/b\n  key: ip\n  limit: {rate: 1, per: 1s}", `rules.yaml:2:9: name is "a/b": use letters, digits, spaces and . _ : -`},
		{"a name that is too long", "rules:\n- name: " + strings.Repeat("a", 65) + "\n  key: ip\n  limit: {rate: 1, per: 1s}", `rules.yaml:2:9: name has 65 bytes: use at most 64`},
		{"two rules of a name", "rules:\n- {name: r, key: ip, limit: {rate: 1, per: 1s}}\n- {name: r, key: ip, limit: {rate: 1, per: 1s}}", `rules.yaml:3:10: rule "r" is used twice: give each rule its own name (the first is on line 2)`},
		{"two limits of a name", oneRule("key: ip\nlimits:\n- {name: a, rate: 1, per: 1s}\n- {name: a, rate: 2, per: 1h}"), `rules.yaml:6:5: limit "r/a" is used twice: give each limit its own name (the first is on line 5)`},
		{"a limit named like another's place", oneRule("key: ip\nlimits:\n- {name: '2', rate: 1, per: 1s}\n- {rate: 2, per: 1h}"), `rules.yaml:6:5: limit "r/2" is used twice: give each limit its own name (the first is on line 5)`},
		{"no limit", oneRule("key: ip"), `rules.yaml:2:3: limit is missing`},
		{"limit and limits", oneRule("key: ip\nlimit: {rate: 1, per: 1s}\nlimits: [{rate: 1, per: 1s}]"), `rules.yaml:5:11: limits and limit in one rule: remove one of them`},
		{"limits without any", oneRule("key: ip\nlimits: []"), `rules.yaml:4:11: limits is empty: add a limit, because a rule needs one`},

		{"a rate of 0", oneRule("key: ip\nlimit: {rate: 0, per: 1s}"), `rules.yaml:4:17: rate is 0: use 1 to 1000000000000`},
		{"a rate with its time", oneRule("key: ip\nlimit: {rate: 5/s}"), "rules.yaml:4:10: per is missing\nrules.yaml:4:17: rate is \"5/s\": use a whole number"},
		{"no rate", oneRule("key: ip\nlimit: {per: 1s}"), `rules.yaml:4:10: rate is missing`},
		{"a time without its unit", oneRule("key: ip\nlimit: {rate: 1, per: 60}"), `rules.yaml:4:25: per is 60: add a unit, like 60s or 60ms`},
		{"a time that is too short", oneRule("key: ip\nlimit: {rate: 1, per: 0s}"), `rules.yaml:4:25: per is 0s: use 1ms to 8784h0m0s`},
		{"a time that is empty", oneRule("key: ip\nlimit: {rate: 1, per: ''}"), `rules.yaml:4:25: per is the text "": write it without quotes`},
		{"a day for a time", oneRule("key: ip\nlimit: {rate: 1, per: day}"), `rules.yaml:4:25: per is "day": write 24h, or calendar: day for the calendar's day`},
		{"1d", oneRule("key: ip\nlimit: {rate: 1, per: 1d}"), `rules.yaml:4:25: per is "1d": write 24h, or calendar: day for the calendar's day`},
		{"a month", oneRule("key: ip\nlimit: {rate: 1, per: month}"), `rules.yaml:4:25: per is "month": write 720h, or calendar: month for the calendar's month`},
		{"2 years", oneRule("key: ip\nlimit: {rate: 1, per: 2 years}"), `rules.yaml:4:25: per is "2 years", which is 17520h: use 1ms to 8784h0m0s`},
		{"7 days", oneRule("key: ip\nlimit: {rate: 1, per: 7 Days}"), `rules.yaml:4:25: per is "7 Days": write 168h, or calendar: week for the calendar's week`},
		{"3 days", oneRule("key: ip\nlimit: {rate: 1, per: 3d}"), `rules.yaml:4:25: per is "3d": write 72h`},
		{"an unknown unit", oneRule("key: ip\nlimit: {rate: 1, per: 1M}"), `rules.yaml:4:25: per is "1M": use a duration, like 1m30s or 250ms`},
		{"none", oneRule("key: ip\nlimit: {rate: 1, per: soon}"), `rules.yaml:4:25: per is "soon": use a duration, like 1m30s or 250ms`},
		{"an unknown algorithm", oneRule("key: ip\nlimit: {rate: 1, per: 1s, algorithm: leaky}"), `rules.yaml:4:40: unknown algorithm "leaky": known are sliding_window, sliding_log, fixed_window, token_bucket, leaky_bucket, in_flight`},
		{"a burst of a window", oneRule("key: ip\nlimit: {rate: 1, per: 1s, burst: 2}"), `rules.yaml:4:36: burst with sliding_window: remove burst, because only token_bucket and leaky_bucket have a burst`},
		{"a log that is too large", oneRule("key: ip\nlimit: {rate: 200000, per: 1s, algorithm: sliding_log}"), `rules.yaml:4:10: Rate is 200000: a sliding_log remembers every admission, and takes at most 100000; use sliding_window`},
		{"an unknown calendar", oneRule("key: ip\nlimit: {rate: 1, calendar: monthly}"), `rules.yaml:4:30: unknown calendar "monthly": did you mean "month"?`},
		{"no calendar", oneRule("key: ip\nlimit: {rate: 1, calendar: none}"), `rules.yaml:4:30: calendar is none: leave it out, or use day, week or month`},
		{"a scope in another spelling", oneRule("scope: Global" + good), `rules.yaml:3:10: unknown scope "Global": did you mean "global"?`},
		{"a calendar and a time", oneRule("key: ip\nlimit: {rate: 1, calendar: month, per: 1h}"), `rules.yaml:4:42: per with calendar: remove per or calendar, because the calendar determines the period`},
		{"a calendar of a bucket", oneRule("key: ip\nlimit: {rate: 1, calendar: month, algorithm: token_bucket}"), `rules.yaml:4:30: calendar with token_bucket: remove calendar or use fixed_window, because only fixed_window has calendar windows`},
		{"a zone of nothing", oneRule("key: ip\nlimit: {rate: 1, per: 1s, zone: UTC}"), `rules.yaml:4:35: zone without calendar: remove zone or add calendar, because only calendar windows have a zone`},
		{"an unknown zone", oneRule("key: ip\nlimit: {rate: 1, calendar: day, zone: Europe/Atlantis}"), `rules.yaml:4:41: unknown zone "Europe/Atlantis": use a name like Europe/Berlin or UTC`},
		{"the machine's zone", oneRule("key: ip\nlimit: {rate: 1, calendar: day, zone: Local}"), `rules.yaml:4:41: zone is "Local": use a name like Europe/Berlin or UTC`},

		{"an unknown key", oneRule("key: adress\nlimit: {rate: 1, per: 1s}"), `rules.yaml:3:8: unknown key "adress": known are ip, user, api_key, global, host, path, path:NAME, header:X, query:X, cookie:X, claim:X`},
		{"a misspelt key", oneRule("key: apikey\nlimit: {rate: 1, per: 1s}"), `rules.yaml:3:8: unknown key "apikey": did you mean "api_key"?`},
		{"a key without parts", oneRule("key: []\nlimit: {rate: 1, per: 1s}"), `rules.yaml:3:8: key is empty: use global for a single count of all requests`},
		{"global among others", oneRule("key: [ip, global]\nlimit: {rate: 1, per: 1s}"), `rules.yaml:3:13: key global among others: use global alone, because it is a single count for all requests`},
		{"a part twice", oneRule("key: [ip, ip]\nlimit: {rate: 1, per: 1s}"), `rules.yaml:3:13: key "ip" is named twice: remove one`},
		{"too many parts", oneRule("key: [ip, user, api_key, 'header:A', 'header:B']\nlimit: {rate: 1, per: 1s}"), `rules.yaml:3:8: key has 5 parts: use at most 4`},
		{"a header without a name", oneRule("key: 'header:'\nlimit: {rate: 1, per: 1s}"), `rules.yaml:3:8: header "" is not the name of a field: use letters, digits and -`},
		{"a wildcard that the path lacks", oneRule("match: {path: '/v1/{id}'}\nkey: path:user\nlimit: {rate: 1, per: 1s}"), `rules.yaml:4:8: key "path:user": path "/v1/{id}" has no segment {user}: use path:NAME for a segment {NAME} of match.path, or path for the whole path`},
		{"a wildcard that is the rest", oneRule("match: {path: '/v1/{rest...}'}\nkey: path:rest\nlimit: {rate: 1, per: 1s}"), `rules.yaml:4:8: key "path:rest": path "/v1/{rest...}" has no segment {rest}: use path:NAME for a segment {NAME} of match.path, or path for the whole path`},
		{"a parameter without a name", oneRule("key: 'query:'\nlimit: {rate: 1, per: 1s}"), `rules.yaml:3:8: key "query:" needs a name, which has no space and none of the characters % & ; , = +`},
		{"a name that no cookie has", oneRule("key: 'cookie:a b'\nlimit: {rate: 1, per: 1s}"), `rules.yaml:3:8: key "cookie:a b" needs a name, which has no space and none of the characters % & ; , = +`},
		{"an unknown way to do without a key", oneRule("key: user\nmissing_key: deny\nlimit: {rate: 1, per: 1s}"), `rules.yaml:4:16: unknown way to do without a key "deny": known are ip, skip, shared`},

		{"a path that is relative", oneRule("match: {path: v1}" + good), `rules.yaml:3:17: path is "v1": begin it with /; a host has a field of its own, match.host`},
		{"a path with a method", oneRule("match: {path: GET /v1}" + good), `rules.yaml:3:17: path is "GET /v1": a path has no space; a method has a field of its own, match.method`},
		{"a path that is not clean", oneRule("match: {path: /v1//a/../b}" + good), `rules.yaml:3:17: path is "/v1//a/../b": requests are matched by their clean path, did you mean "/v1/b"?`},
		{"a path with a query", oneRule("match: {path: '/v1?x=1'}" + good), `rules.yaml:3:17: path is "/v1?x=1": a path has no query; write %3F or %23 for the characters ? and #`},
		{"a wildcard within a segment", oneRule("match: {path: '/v1/a{id}'}" + good), `rules.yaml:3:17: path is "/v1/a{id}": a wildcard is a whole segment, like {name}: "a{id}" is not`},
		{"a wildcard that does not end", oneRule("match: {path: '/v1/{id'}" + good), `rules.yaml:3:17: path is "/v1/{id": a wildcard is a whole segment, like {name}: "{id" is not`},
		{"a rest that is not at the end", oneRule("match: {path: '/{x...}/a'}" + good), `rules.yaml:3:17: path is "/{x...}/a": {x...} is the rest of a path: nothing can follow it`},
		{"an end that is not at the end", oneRule("match: {path: '/{$}/a'}" + good), `rules.yaml:3:17: path is "/{$}/a": {$} is the end of a path: nothing can follow it`},
		{"a wildcard twice", oneRule("match: {path: '/{x}/{x}'}" + good), `rules.yaml:3:17: path is "/{x}/{x}": the wildcard {x} is used twice: give each wildcard its own name`},
		{"a wildcard without a name", oneRule("match: {path: '/{}'}" + good), `rules.yaml:3:17: path is "/{}": the wildcard {} has no good name: use letters, digits and _, like {name}`},
		{"no text for a path", oneRule("match: {path: 5}" + good), `rules.yaml:3:17: path is 5, a number: put it in quotes if it is a text`},
		{"an empty path", oneRule("match: {path: ''}" + good), `rules.yaml:3:17: path is "": use / for every path`},
		{
			"paths in conflict", "rules:\n- {name: a, match: {path: '/{x}/b'}, key: ip, limit: {rate: 1, per: 1s}}\n- {name: b, match: {path: '/a/{y}'}, key: ip, limit: {rate: 1, per: 1s}}",
			`rules.yaml:3:27: path "/a/{y}" conflicts with "/{x}/b" of rule "a" on line 2: some paths match both, and neither is more specific; replace one of them with several patterns that do not conflict`,
		},
		{
			"paths in conflict, the more general one later", "rules:\n- {name: a, match: {path: '/a/{y}/c'}, key: ip, limit: {rate: 1, per: 1s}}\n- {name: b, match: {path: '/{x}/b/'}, key: ip, limit: {rate: 1, per: 1s}}",
			`rules.yaml:3:27: path "/{x}/b/" conflicts with "/a/{y}/c" of rule "a" on line 2: some paths match both, and neither is more specific; replace one of them with several patterns that do not conflict`,
		},
		{"an unknown method", oneRule("match: {method: GTE}" + good), `rules.yaml:3:19: unknown method "GTE": did you mean "GET"?`},
		{"a method in lower case", oneRule("match: {method: post}" + good), `rules.yaml:3:19: unknown method "post": did you mean "POST"?`},
		{"a host with a port", oneRule("match: {host: 'example.com:80'}" + good), `rules.yaml:3:17: host is "example.com:80": did you mean "example.com"? A port and a final dot do not matter`},
		{"a wildcard within a host", oneRule("match: {host: 'api.*.com'}" + good), `rules.yaml:3:17: host is "api.*.com": only *. at the beginning is a wildcard, as in *.example.com; list each other host, or leave it out to match all`},
		{"an exact host with a wildcard", oneRule("match: {host: {exact: '*.a.com'}}" + good), `rules.yaml:3:17: host is "*.a.com": use a name or an address, like api.example.com`},
		{"a wildcard for an address", oneRule("match: {ip: 10.*}" + good), `rules.yaml:3:15: ip is "10.*": addresses have no wildcards, write 10.0.0.0/8`},
		{"an exception for no host of the rule", oneRule("match: {host: '*.a.com', not: {host: a.com}}" + good), `rules.yaml:3:33: the field not has no effect: the rule applies to no request with the host in not (host a.com)`},
		{"an exception for all hosts of the rule", oneRule("match: {host: b.a.com, not: {host: '*.a.com'}}" + good), `rules.yaml:3:31: the field not leaves no request to the rule: all of its requests are in not (host *.a.com)`},
		{"a host that no client sends", oneRule("match: {host: münchen.de}" + good), `rules.yaml:3:17: host is "münchen.de": clients send a name in ASCII, like xn--mnchen-3ya.de for münchen.de`},
		{"a URL for a host", oneRule("match: {host: 'https://example.com'}" + good), `rules.yaml:3:17: host is "https://example.com": use a name or an address, like api.example.com`},
		{"the host as a header", oneRule("match: {header: {host: a}}" + good), `rules.yaml:3:20: header "host" is matched by match.host: use that`},
		{"a header that is none", oneRule("match: {header: {'X Y': a}}" + good), `rules.yaml:3:20: header "X Y" is not the name of a field: use letters, digits and -`},
		{"a number for a header's value", oneRule("match: {header: {X-V: 2}}" + good), `rules.yaml:3:25: X-V is 2, a number: put it in quotes if it is a text`},
		{"any value among others", oneRule("match: {header: {X-V: [a, '*']}}" + good), `rules.yaml:3:25: X-V is * among others: use * alone, because it stands for any value`},

		{"an unknown tier", "tiers: {free: {}, premium: {}}\n" + oneRule("match: {tier: premum}"+good), `rules.yaml:4:17: unknown tier "premum": did you mean "premium"?`},
		{"a tier where there are none", oneRule("match: {tier: free}" + good), `rules.yaml:3:17: unknown tier "free": there are none`},
		{"an unknown tier of a limit", "tiers: {free: {}}\n" + oneRule("key: ip\nlimit: {rate: 1, per: 1s, tiers: {basic: {rate: 2}}}"), `rules.yaml:5:37: unknown tier "basic": known are free`},
		{"an unknown default tier", "tiers: {free: {}}\ndefault_tier: gold\nrules: []", `rules.yaml:2:15: unknown tier "gold": known are free`},
		{"a tier that is multiplied by nothing", "tiers: {free: {multiply: 0}}\nrules: []", `rules.yaml:1:26: multiply is 0: use 0.001 to 1e+06`},
		{"a tier with a rate of 0", "tiers: {free: {}}\n" + oneRule("key: ip\nlimit: {rate: 1, per: 1s, tiers: {free: {rate: 0}}}"), `rules.yaml:5:50: rate is 0: use 1 to 1000000000000`},
		{"a tier that is multiplied too far", "tiers: {all: {multiply: 1000}}\n" + oneRule("key: user\nlimit: {rate: 10000000000, per: 1s}"), `rules.yaml:5:10: in tier "all" the multiplied rate or burst is 2000000000000: use at most 1000000000000`},
		{"a tier whose log is too large", "tiers: {all: {multiply: 1000}}\n" + oneRule("key: user\nlimit: {rate: 1000, per: 1s, algorithm: sliding_log}"), `rules.yaml:5:10: Rate is 1000000: a sliding_log remembers every admission, and takes at most 100000; use sliding_window`},
		{"a tier with a burst of a window", "tiers: {free: {}}\n" + oneRule("key: ip\nlimit: {rate: 1, per: 1s, tiers: {free: {rate: 5, burst: 9}}}"), `rules.yaml:5:60: burst with sliding_window: remove burst, because only token_bucket and leaky_bucket have a burst`},

		{"an unknown cost", oneRule("cost: size" + good), `rules.yaml:3:9: cost is "size": use a number, content_length or header:X`},
		{"a cost below 0", oneRule("cost: -1" + good), `rules.yaml:3:9: cost is -1: use 0 to 1000000000000`},
		{"a cost from nowhere", oneRule("cost: {default: 5}" + good), `rules.yaml:3:9: from is missing`},
		{"a cost in units of nothing", oneRule("cost: {from: content_length, unit: 0}" + good), `rules.yaml:3:38: unit is 0: use 1 to 1000000000000`},
		{"an unknown policy", oneRule("partition: fail-open" + good), `rules.yaml:3:14: unknown partition policy "fail-open": did you mean "fail_open"?`},
		{"a shadow that is no truth", oneRule("shadow: yes" + good), `rules.yaml:3:11: shadow is "yes": use true or false`},
		{"a part without its sign", oneRule("enforce: 0" + good), `rules.yaml:3:12: enforce is 0: use a percentage, like 0%`},
		{"a part of no keys", oneRule("enforce: 0%" + good), `rules.yaml:3:12: enforce is 0%: use more than 0%, or shadow: true`},
		{"a part of less than a key in a million", oneRule("enforce: 0.00001%" + good), `rules.yaml:3:12: enforce is 0.00001%: use at least 0.0001%`},
		{"a part that is no percentage", oneRule("enforce: 0.1" + good), `rules.yaml:3:12: enforce is 0.1: use a percentage, like 10%`},
		{"a part above all keys", oneRule("enforce: 110%" + good), `rules.yaml:3:12: enforce is 110%: use 0% to 100%`},
		{"a part of a shadow", oneRule("shadow: true\nenforce: 5%" + good), `rules.yaml:4:12: enforce in a rule with shadow: remove enforce or shadow, because a shadow denies nothing`},
		{"a rule that is enabled by no truth", oneRule("enabled: 1" + good), `rules.yaml:3:12: enabled is "1": use true or false`},
		{"an overrun of nothing", oneRule("soft: {over: 0%, for: 1m}" + good), `rules.yaml:3:16: over is 0%: use more than 0%, or remove soft`},
		{"an overrun that is no percentage", oneRule("soft: {over: 0.2, for: 1m}" + good), `rules.yaml:3:16: over is 0.2: use a percentage, like 20%`},
		{"an overrun without its time", oneRule("soft: {over: 20%}" + good), `rules.yaml:3:9: for is missing`},
		{"an overrun of a shadow", oneRule("shadow: true\nsoft: {over: 20%, for: 1m}" + good), `rules.yaml:4:9: soft in a rule with shadow: remove soft or shadow, because a shadow denies nothing`},
		{"a ban for no denials", oneRule("ban: {denials: 0, within: 1m, for: 1h}" + good), `rules.yaml:3:18: denials is 0: use 1 to 10000`},
		{"a ban without its length", oneRule("ban: {denials: 5, within: 1m}" + good), `rules.yaml:3:8: for is missing`},
		{"a ban of no lengths", oneRule("ban: {denials: 5, within: 1m, for: []}" + good), `rules.yaml:3:38: the list is empty: remove it, or add to it`},
		{"a ban of too many lengths", oneRule("ban: {denials: 5, within: 1m, for: [1s, 2s, 3s, 4s, 5s]}" + good), `rules.yaml:3:38: for has 5 lengths: use at most 4, the last one applies to all further bans`},
		{"a ban of half a second", oneRule("ban: {denials: 5, within: 1m, for: [1m, 1500ms]}" + good), `rules.yaml:3:43: for is 1.5s: use whole seconds`},
		{"a ban of all clients", oneRule("key: global\nban: {denials: 5, within: 1m, for: 1h}\nlimit: {rate: 1, per: 1s}"), `rules.yaml:4:8: ban in a rule with key global: use a key that names a client, because the ban would hit all clients`},
		{"a ban of all clients without a key", oneRule("missing_key: shared\nban: {denials: 5, within: 1m, for: 1h}\nkey: user\nlimit: {rate: 1, per: 1s}"), `rules.yaml:4:8: ban in a rule with missing_key: shared: use missing_key: ip or skip, because the ban would hit all clients without the key`},
		{"a ban of a shadow", oneRule("shadow: true\nban: {denials: 5, within: 1m, for: 1h}" + good), `rules.yaml:4:8: ban in a rule with shadow: remove ban or shadow, because a shadow denies nothing`},
		{"a ban of a queue", oneRule("key: ip\nqueue: 2s\nban: {denials: 5, within: 1m, for: 1h}\nlimit: {rate: 1, per: 1s, algorithm: leaky_bucket}"), `rules.yaml:5:8: ban in a rule with queue: remove ban or queue, because the denials of a waiting request do not count`},
		{"a ban of an overrun", oneRule("soft: {over: 20%, for: 1m}\nban: {denials: 5, within: 1m, for: 1h}" + good), `rules.yaml:4:8: ban in a rule with soft: remove ban or soft`},
		{"a ban of units in flight", oneRule("key: ip\nban: {denials: 5, within: 1m, for: 1h}\nlimit: {algorithm: in_flight, rate: 1}"), `rules.yaml:4:8: ban in a rule whose limits are all in_flight: add a limit with a rate, because only denials of such a limit ban a key`},
		{"a queue of a window", oneRule("queue: 2s" + good), `rules.yaml:3:10: queue needs a single limit, which is leaky_bucket or in_flight: change the limit, or remove queue`},
		{"a time of units in flight", oneRule("key: ip\nlimit: {algorithm: in_flight, rate: 1, per: 1s}"), `rules.yaml:4:47: per with in_flight: remove per, because units in flight come back when requests end, not with time`},
		{"a tier's time of units in flight", "tiers: {a: {}}\n" + oneRule("key: ip\nlimit: {algorithm: in_flight, rate: 1, tiers: {a: {rate: 2, per: 1s}}}"), `rules.yaml:5:68: per with in_flight: remove per, because units in flight come back when requests end, not with time`},
		{"a burst of units in flight", oneRule("key: ip\nlimit: {algorithm: in_flight, rate: 1, burst: 2}"), `rules.yaml:4:49: burst with in_flight: remove burst, because only token_bucket and leaky_bucket have a burst`},
		{"a calendar of units in flight", oneRule("key: ip\nlimit: {algorithm: in_flight, rate: 1, calendar: day}"), `rules.yaml:4:52: calendar with in_flight: remove calendar or use fixed_window, because only fixed_window has calendar windows`},
		{"an overrun of units in flight", oneRule("key: ip\nsoft: {over: 20%, for: 1m}\nlimit: {algorithm: in_flight, rate: 1}"), `rules.yaml:4:9: soft in a rule with an in_flight limit: put soft and the in_flight limit into two rules, because an in_flight limit never holds more than its rate`},
		{"a status that none is", oneRule("count: {status: [401, 6xx]}" + good), `rules.yaml:3:25: status is "6xx": use one from 100 to 599, or all of a kind, like 5xx`},
		{"a status as a text", oneRule("refund_on: {status: failed}" + good), `rules.yaml:3:23: status is "failed": use one from 100 to 599, or all of a kind, like 5xx`},
		{"no status", oneRule("count: {}" + good), `rules.yaml:3:10: status is missing`},
		{"count and refund_on", oneRule("count: {status: 401}\nrefund_on: {status: 5xx}" + good), `rules.yaml:4:14: refund_on in a rule with count: remove refund_on or count, because count already selects the requests that are refunded`},
		{"an outcome of a queue", oneRule("count: {status: 401}\nqueue: 2s\nkey: ip\nlimit: {rate: 1, per: 1s, algorithm: leaky_bucket}"), `rules.yaml:3:10: count in a rule with queue: put count and queue into two rules, because units of a queued request cannot be refunded`},
		{"an outcome of an overrun", oneRule("refund_on: {status: 5xx}\nsoft: {over: 20%, for: 1m}" + good), `rules.yaml:3:14: refund_on in a rule with soft: put refund_on and soft into two rules, because an overrun cannot be refunded`},
		{"an outcome of units in flight", oneRule("count: {status: 401}\nkey: ip\nlimit: {algorithm: in_flight, rate: 1}"), `rules.yaml:3:10: count in a rule whose limits are all in_flight: remove count, because their units are released after each response`},
		{"reserve without settle", oneRule("reserve: 5" + good), `rules.yaml:3:12: reserve without settle: use cost instead of reserve, because nothing would replace the estimate`},
		{"reserve and cost", oneRule("cost: 2\nreserve: 5\nsettle: {json: n}" + good), `rules.yaml:3:9: cost in a rule with reserve: remove cost or reserve, because only in_flight limits have both`},
		{"an estimate of a text", oneRule("reserve: size\nsettle: {json: n}" + good), `rules.yaml:3:12: reserve is "size": use a number, content_length, header:X or json:FIELD`},
		{"a list of estimates", oneRule("reserve: [json:a, 5]\nsettle: {json: n}" + good), `rules.yaml:3:21: reserve is 5, a number: put it in quotes if it is a text`},
		{"an empty list of estimates", oneRule("reserve: {from: []}\nsettle: {json: n}" + good), `rules.yaml:3:19: the list is empty: remove it, or add to it`},
		{"a cost by JSON", oneRule("cost: json:n" + good), `rules.yaml:3:9: cost is "json:n": use a number, content_length or header:X`},
		{"a path through a list", oneRule("settle: {json: 'choices[0].n'}" + good), `rules.yaml:3:18: "choices[0].n" is no path: use names of objects, like usage.total_tokens`},
		{"only optional paths", oneRule("settle: {json: [a or 0, b or 0]}" + good), `rules.yaml:3:18: each path is optional, so that a response without any of them would cost nothing: let one be without "or 0"`},
		{"an optional path alone", oneRule("settle: {json: a or 0}" + good), `rules.yaml:3:18: each path is optional, so that a response without any of them would cost nothing: let one be without "or 0"`},
		{"an optional list of paths", oneRule("settle: {sse: [[a], [b or 0]]}" + good), `rules.yaml:3:23: each path is optional, so that a response without any of them would cost nothing: let one be without "or 0"`},
		{"a path beside lists", oneRule("settle: {json: [[a], b]}" + good), `rules.yaml:3:24: the list has a path among lists of paths: put the path into a list of its own`},
		{"a list beside paths", oneRule("settle: {json: [a, [b]]}" + good), `rules.yaml:3:22: json is a list: use a single value`},
		{"an empty alternative", oneRule("settle: {json: [[a], []]}" + good), `rules.yaml:3:24: the list is empty: remove it, or add to it`},
		{"nine alternatives", oneRule("settle: {json: [[a], [a], [a], [a], [a], [a], [a], [a], [a]]}" + good), `rules.yaml:3:18: the list has 9 alternatives: use at most 8`},
		{"an optional field of a request", oneRule("reserve: json:a or 0\nsettle: {json: n}" + good), `rules.yaml:3:12: "a or 0" is no path: use names of objects, like usage.total_tokens`},
		{"settle without a source", oneRule("settle: {on_error: keep}" + good), `rules.yaml:3:11: settle has no source: name a header, a trailer, or json and sse fields`},
		{"settle of an unknown error", oneRule("settle: {json: n, on_error: debit}" + good), `rules.yaml:3:31: unknown way to settle an error "debit": known are refund, keep`},
		{"settle of a queue", oneRule("settle: {json: n}\nqueue: 2s\nkey: ip\nlimit: {rate: 1, per: 1s, algorithm: leaky_bucket}"), `rules.yaml:3:11: settle in a rule with queue: put settle and queue into two rules, because units of a queued request cannot be refunded`},
		{"a queue of two limits", oneRule("key: ip\nqueue: 2s\nlimits: [{rate: 1, per: 1s, algorithm: leaky_bucket}, {rate: 1, per: 1h}]"), `rules.yaml:4:10: queue needs a single limit, which is leaky_bucket or in_flight: change the limit, or remove queue`},
		{"a queue that is too long", oneRule("key: ip\nqueue: 2h\nlimit: {rate: 1, per: 1s, algorithm: leaky_bucket}"), `rules.yaml:4:10: queue is 2h: use 1ms to 1m0s`},
		{"an exempt address that is none", "exempt: {ip: [10.0.0.0/33]}\nrules: []", `rules.yaml:1:15: ip is "10.0.0.0/33": use an address or a network, like 192.0.2.1 or 10.0.0.0/8`},
		{"an empty exempt address", "exempt: {ip: ''}\nrules: []", `rules.yaml:1:14: ip is "": use an address or a network, like 192.0.2.1 or 10.0.0.0/8`},
		{"an empty address in not", "rules: [{name: a, key: ip, match: {not: {ip: ['']}}, limit: {rate: 1, per: 1s}}]", `rules.yaml:1:47: ip is "": use an address or a network, like 192.0.2.1 or 10.0.0.0/8`},
		{"an exempt network of IPv4 within IPv6", "exempt: {ip: '::ffff:10.0.0.0/104'}\nrules: []", `rules.yaml:1:14: ip is "::ffff:10.0.0.0/104": use an address or a network, like 192.0.2.1 or 10.0.0.0/8`},
		{"an exempt user without a name", "exempt: {user: ['']}\nrules: []", `rules.yaml:1:17: the text is empty: write a text, or remove this entry`},
		{"deny without a client", "deny: {reason: r}\nrules: []", `rules.yaml:1:7: deny has no client: add ip, user, api_key or key`},
		{"an empty deny", "deny: []\nrules: []", `rules.yaml:1:7: the list is empty: remove it, or add to it`},
		{"a denied network with a wildcard", "deny: [{ip: 10.1.*}]\nrules: []", `rules.yaml:1:13: ip is "10.1.*": addresses have no wildcards, write 10.1.0.0/16`},
		{"a denied API key with a wildcard", "deny: {api_key: 'secret-*'}\nrules: []", `rules.yaml:1:17: one api_key: * reads as a wildcard, and texts are compared as they are: list each text, or write {exact: ...} around this one`},
		{"a denied key of no rule", "deny: {key: {r2: a}}\n" + oneRule("key: ip\nlimit: {rate: 1, per: 1s}"), `rules.yaml:1:14: there is no rule "r2": did you mean "r"?`},
		{"a misspelt field of deny", "deny: {ip: 192.0.2.1, untill: 1}\nrules: []", `rules.yaml:1:23: unknown field "untill": did you mean "until"?`},
		{"an end without a time", "deny: {ip: 192.0.2.1, until: 2026-01-02}\nrules: []", `rules.yaml:1:30: until is "2026-01-02": use a time like 2006-01-02T15:04:05Z`},
		{"a reason that is too long", "deny: {ip: 192.0.2.1, reason: " + strings.Repeat("a", 257) + "}\nrules: []", `rules.yaml:1:31: reason has 257 bytes: use at most 256`},
		{"too many tiers", "tiers: {" + strings.Join(numberedNames("t", maxTiers+1), ": {}, ") + ": {}}\nrules: []", `rules.yaml:1:8: tiers has 65 entries: use at most 64`},
		{"too many limits", oneRule("key: ip\nlimits:" + strings.Repeat("\n- {rate: 1, per: 1s}", maxLimits+1)), `rules.yaml:5:3: limits has 17 entries: use at most 16 in a rule`},
		{"a queue and an overrun", oneRule("key: ip\nqueue: 2s\nsoft: {over: 20%, for: 1m}\nlimit: {rate: 1, per: 1s, algorithm: leaky_bucket}"), `rules.yaml:4:10: queue in a rule with soft: remove queue or soft`},
		{"an IPv6 prefix out of range", "ipv6_prefix: 16\nrules: []", `rules.yaml:1:14: ipv6_prefix is 16: use 32 to 128`},
		{"an unknown placeholder", oneRule("denied: {detail: 'limit of {limt}'}" + good), `rules.yaml:3:20: detail has the unknown placeholder "{limt}": did you mean "limit"?`},
		{"a placeholder of Go's templates", "denied: {title: '{{.limit}}', html: '{{detail}}', detail: '{title}'}\nrules: []", "rules.yaml:1:17: title has the unknown placeholder \"{{.limit}}\": did you mean \"limit\"?\nrules.yaml:1:37: html has \"{{detail}}\": write {detail}\nrules.yaml:1:59: detail has the unknown placeholder \"{title}\": known are limit, remaining, units, retry_after, reset, window, rule, name, tier"},
		{"no texts of denials", oneRule("denied: {}" + good), `rules.yaml:3:11: denied is empty: remove it, or add title, detail, upgrade_url, html or headers`},
		{"an empty text of denials", oneRule("denied: {detail: ''}" + good), `rules.yaml:3:20: detail is empty: remove it, or add a text`},
		{"a long text of denials", oneRule("denied: {title: " + strings.Repeat("a", 1025) + "}" + good), `rules.yaml:3:19: title has 1025 bytes: use at most 1024`},
		{"texts of an unknown tier", "tiers: {free: {}}\n" + oneRule("denied: {tiers: {fre: {title: a}}}"+good), `rules.yaml:4:20: unknown tier "fre": did you mean "free"?`},
		{"a URL that is a script", oneRule("denied: {upgrade_url: 'javascript:alert(1)'}" + good), `rules.yaml:3:25: upgrade_url is "javascript:alert(1)": use one that begins with https:// or /`},
		{"a URL whose scheme is a placeholder", oneRule("denied: {upgrade_url: '{tier}://a'}" + good), `rules.yaml:3:25: upgrade_url is "{tier}://a": use one that begins with https:// or /`},
		{"a header of the connection", oneRule("denied: {headers: {transfer-encoding: chunked}}" + good), `rules.yaml:3:22: header "transfer-encoding" belongs to the connection or to the form of the body: remove it`},
		{"a header of Weir", oneRule("denied: {headers: {X-RateLimit-Limit: a}}" + good), `rules.yaml:3:22: header "X-RateLimit-Limit" is set by Weir itself: remove it`},
		{"a header in two cases", oneRule("denied: {headers: {x-a: a, X-A: b}}" + good), `rules.yaml:3:30: header "X-A" is named twice: remove one`},
		{"a header of two lines", oneRule("denied: {headers: {X-A: \"a\\r\\nSet-Cookie: b\"}}" + good), `rules.yaml:3:27: X-A is "a\r\nSet-Cookie: b": use printable characters of ASCII, without line breaks`},
		{"a number in a header", oneRule("denied: {headers: {X-A: 5}}" + good), `rules.yaml:3:27: X-A is 5, a number: put it in quotes if it is a text`},
		{"a warning of a number", oneRule("warn: 0.8" + good), `rules.yaml:3:9: warn is 0.8: use a percentage, like 80%`},
		{"a warning above the limit", oneRule("key: ip\nlimit: {rate: 1, per: 1s, warn: 101%}"), `rules.yaml:4:35: warn is 101%: use 0% to 100%`},
		{"a warning without its sign", oneRule("warn: 0" + good), `rules.yaml:3:9: warn is 0: use a percentage, like 0%`},
		{"a warning from the start", oneRule("warn: 0%" + good), `rules.yaml:3:9: warn is 0%: use more than 0%, or no warn`},
		{"a warning of a shadow", oneRule("shadow: true\nwarn: 80%" + good), `rules.yaml:4:9: warn in a rule with shadow: remove warn or shadow, because a shadow warns no client`},
		{"a cost of no method of the rule", oneRule("match: {method: GET}\ncost: {by: {method: POST, units: 5}}" + good), `rules.yaml:4:23: by has no effect: the rule applies to no request with the method in by (POST)`},
		{"a cost of no path of the rule", oneRule("match: {path: /v1/}\ncost: {by: {path: [/v1/a, /v2], units: 5}}" + good), `rules.yaml:4:29: by has no effect: no path matches both "/v1/" of the rule and "/v2" of by`},
		{"a cost of all requests", oneRule("cost: {by: [{units: 5}], default: 2}" + good), `rules.yaml:3:15: by has an entry for all requests: give it a method or a path, or use default`},
		{"a cost by method with the unit of nothing", oneRule("cost: {by: {method: POST, units: 5}, unit: 2}" + good), `rules.yaml:3:46: unit without from: remove unit or add from, because unit divides the number that from reads`},
		{"a multiple of one count", oneRule("multiply: true\nkey: global\nlimit: {rate: 1, per: 1s}"), `rules.yaml:3:13: multiply in a rule with key global: one count of all requests has no tier; give the limit its own numbers for tiers`},
		{"several at once", "rules:\n- {name: a, key: who, limit: {rate: 0, per: 1s}}\n- {name: a, key: ip, limt: {rate: 0, per: 1s}}", "rules.yaml:2:18: unknown key \"who\": known are ip, user, api_key, global, host, path, path:NAME, header:X, query:X, cookie:X, claim:X\nrules.yaml:2:37: rate is 0: use 1 to 1000000000000\nrules.yaml:3:3: limit is missing\nrules.yaml:3:10: rule \"a\" is used twice: give each rule its own name (the first is on line 2)\nrules.yaml:3:22: unknown field \"limt\": did you mean \"limit\"?"},
	} {
		_, err := Parse("rules.yaml", []byte(c.text))
		require.EqualError(t, err, c.want, c.about)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(largeFile(20))
	f.Add(oneRule("key: [user, 'header:X']\ncost: {from: content_length, unit: 3}\nsoft: {over: 5%, for: 1h}\nlimits: [{rate: 5, calendar: week, zone: Asia/Kathmandu}]"))
	f.Add(oneRule("count: {status: [401, '5xx', 600]}\nrefund_on: {status: 2xx}\nkey: ip\nlimits: [{rate: 5, algorithm: in_flight}, {rate: 1, per: 1s}]"))
	f.Add(oneRule("reserve: {from: [json:max_tokens, header:X, content_length], default: 5, unit: 2}\nsettle: {json: [a, b.c], sse: a, header: X, trailer: Y, unit: 3, on_error: keep}\nkey: ip\nlimit: {rate: 5, per: 1s}"))
	f.Add("tiers: {a: {}}\ndenied: {title: '{rule}', upgrade_url: 'https://a/{tier}', html: '{detail}', headers: {X-A: '{limit} {'}, tiers: {a: {detail: '{{tier}}'}}}\n" + oneRule("key: ip\ndenied: {detail: a}\nlimit: {rate: 5, per: 1s}"))
	f.Add(oneRule("settle: {json: [[a, b.c or 0], [d]], sse: [[e or 0, f]]}\nkey: ip\nlimit: {rate: 5, per: 1s}"))
	f.Add(oneRule("enabled: false\nenforce: 12.5%\nkey: ip\nlimit: {rate: 5, per: 1s}"))
	f.Add(denyFile)
	f.Add(`{"rules":[{"name":"a","match":{"path":"/{x}/{$}","host":["h"]},"key":"global","limit":{"rate":1,"per":"1s"}}]}`)
	f.Add(oneRule("match: {path: '/a:b/{x}', method: '!GET', host: '*.a', header: {X-A: [{exact: '*'}, 'a*', '(?i)b']}, not: [{path: [/a, /b/], tier: t}, {header: {X-B: '*'}}]}\nkey: ip\nlimit: {rate: 1, per: 1s}"))
	f.Add("--- # fragment a.yaml\n$schema: a\ndeny: {ip: 192.0.2.1}\n--- # fragment b.yaml\n$schema: a\ndeny: [{user: a}]\n" + oneRule("key: ip\nlimit: {rate: 1, per: 1s}"))
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse("rules.yaml", []byte(text))
		if err != nil {
			require.True(t, strings.HasPrefix(err.Error(), "rules.yaml:") || strings.HasPrefix(err.Error(), "rules.yaml/"), err)
			return
		}
		for _, rule := range s.Rules() {
			require.NotEmpty(t, rule.Limits)
			if d := rule.Denied("a"); d != nil {
				d.Detail.Expand(func(name string) string { return name })
			}
			for i := range rule.Limits {
				for _, tier := range append(s.Tiers(), "") {
					require.NoError(t, rule.Limits[i].ForTier(tier).Validate())
				}
			}
		}
		s.Match(&Request{Method: "GET", Path: "/a/b", Host: "h"}, nil)
	})
}
