package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/weir-go/weir/admin"
)

// cluster is the status of the cluster, as reported by a single node.
type cluster struct {
	admin.Members
	Ring   admin.Ring   `json:"ring"`
	Stats  admin.Stats  `json:"stats"`
	Totals admin.Totals `json:"totals"`
	Top    admin.Top    `json:"top"`
}

// nameOf returns the printed name of a key.
func nameOf(k admin.TopKey) string {
	switch {
	case k.Key == nil:
		return k.ID
	case k.Masked:
		return shown(*k.Key) + " " + k.ID
	}
	return shown(*k.Key)
}

// statusCommand prints the status of a cluster for an operator on call.
type statusCommand struct{ asking }

func (s *statusCommand) ask(ctx context.Context, c *client) (int, error) {
	var answer cluster
	members, err := c.members(ctx)
	if err != nil {
		return 0, err
	}
	answer.Members.Members = members
	texts := map[string]any{"members": answer.Members}
	for _, part := range []struct {
		name, path string
		into       any
	}{{"ring", "/v1/ring", &answer.Ring}, {"stats", "/v1/stats", &answer.Stats}, {"totals", "/v1/totals", &answer.Totals}, {"top", "/v1/top?n=5", &answer.Top}} {
		text, _, err := c.call(ctx, http.MethodGet, part.path, nil, part.into)
		if err != nil {
			return 0, err
		}
		texts[part.name] = json.RawMessage(text)
	}
	if s.JSON {
		return ok, json.NewEncoder(c.stdout).Encode(texts)
	}
	answer.print(c.stdout, time.Now())
	if answer.Stats.Outage.Since != nil || !answer.Stats.Ready {
		return bad, nil
	}
	return ok, nil
}

// members returns the list of all members that the node knows. Each response from the node contains
// one page of the list.
func (c *client) members(ctx context.Context) (all []admin.Member, err error) {
	for path := "/v1/members"; ; {
		var page admin.Members
		if _, _, err := c.call(ctx, http.MethodGet, path, nil, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Members...)
		if page.Next == "" {
			return all, nil
		}
		path = "/v1/members?" + url.Values{"after": {page.Next}}.Encode()
	}
}

// print prints the status, problems first.
func (c *cluster) print(w io.Writer, now time.Time) {
	s := &c.Stats
	switch {
	case s.Outage.Since != nil:
		fmt.Fprintf(w, "OUTAGE since %s (%s): ", s.Outage.Since.Format(time.RFC3339), now.Sub(*s.Outage.Since).Round(time.Second))
		if len(s.Outage.Missing) > 0 {
			fmt.Fprintf(w, "missing %s; ", strings.Join(s.Outage.Missing, ", "))
		}
		fmt.Fprintf(w, "%d checks of this node were decided by stand-ins, within shares, or by FailOpen or FailClosed\n", s.Outage.Decisions)
	case s.Unjoined > 0:
		fmt.Fprintf(w, "ALONE for %s: this node counts alone, because no address of -join has answered\n", time.Duration(s.Unjoined)*time.Millisecond)
	case s.Snapshots.Loading:
		fmt.Fprintln(w, "NOT READY: the node loads snapshots")
	case !s.Ready:
		fmt.Fprintln(w, "NOT READY: the node is joining, leaving, or waiting for its counts")
	default:
		fmt.Fprintln(w, "ready; the owner of each key decides its checks")
	}
	for _, name := range slices.Sorted(maps.Keys(s.Cluster.Unanswered)) {
		fmt.Fprintf(w, "join %s: %s\n", name, s.Cluster.Unanswered[name])
	}
	for _, name := range slices.Sorted(maps.Keys(s.Regions)) {
		if !s.Regions[name].Reached {
			fmt.Fprintf(w, "region %s: not reached within the last 10 s, or there was nothing to send\n", name)
		}
	}
	c.printMembers(w)
	c.printDecisions(w)
	c.printLimits(w)
	c.printTop(w)
	fmt.Fprintf(w, "\nTHIS NODE\nversion: %s\n", s.Version)
	fmt.Fprintf(w, "counts: %d in memory, at most %d; %d evicted; %d have changes that a member has not acknowledged, the oldest for %d ms\n", s.Keys, s.MaxKeys, s.Evicted, s.Stream.Unsent, s.Stream.LagMS)
	if s.Holds.Held > 0 || s.Holds.Lost > 0 {
		fmt.Fprintf(w, "holds: %d of this node's callers and clients; %d were lost\n", s.Holds.Held, s.Holds.Lost)
	}
	if r := &s.Reserved; r.Made+r.Settled+r.Canceled > 0 {
		fmt.Fprintf(w, "reservations: %d made here, %d settled and %d canceled here; %d expired unsettled\n", r.Made, r.Settled, r.Canceled, r.Unsettled)
	}
	c.printSnapshots(w)
	if r := s.Rules; r != nil {
		fmt.Fprintf(w, "rules: version %d (%.12s) of %s, %d rules, %d limits, %d overrides, %d switches", r.Version, r.Hash, r.LoadedAt.Format(time.RFC3339), r.Rules, r.Limits, r.Overrides, r.Switches)
		if p := r.Published; p != nil {
			fmt.Fprintf(w, ", published by %s at %s", p.By, p.At.Format(time.RFC3339))
		}
		if p := r.RefusedText; p != nil {
			fmt.Fprintf(w, "; PUBLISHED VERSION %d IS NOT IN FORCE: %s", p.Version, p.Error)
		}
		switch {
		case r.Missing:
			fmt.Fprint(w, "; THE FILE IS MISSING: these rules stay in force")
		case !r.InForce:
			fmt.Fprintf(w, "; THE CURRENT FILE WAS REFUSED: GET /v1/rules has the reason")
		}
		fmt.Fprintln(w)
		printFactors(w, r.Factors)
	}
}

// printFactors prints at most limitsShown of the factors that have changed.
func printFactors(w io.Writer, all []admin.Factor) {
	changed := slices.DeleteFunc(slices.Clone(all), func(f admin.Factor) bool { return f.Changed == nil })
	for _, f := range changed[:min(limitsShown, len(changed))] {
		fmt.Fprintf(w, "adapt: %s has %.0f %% of its numbers since %s (%s)\n", f.Rule, f.Factor*100, f.Changed.Format(time.RFC3339), f.Reason)
	}
}

// printSnapshots prints nothing if the statistics contain neither a snapshot nor an error.
func (c *cluster) printSnapshots(w io.Writer) {
	s := &c.Stats.Snapshots
	if s.Loaded > 0 || s.Refused > 0 {
		fmt.Fprintf(w, "snapshots: %d counts loaded at the start; %d snapshots were refused\n", s.Loaded, s.Refused)
	}
	if s.Saved > 0 {
		fmt.Fprintf(w, "snapshots: the last is %v old, has %d counts in %d bytes, and was written in %d ms; %d attempts failed\n",
			(time.Duration(s.AgeMS) * time.Millisecond).Round(time.Second), s.Counts, s.Bytes, s.TookMS, s.Failures)
	}
	if s.Error != "" {
		fmt.Fprintf(w, "snapshots: THE LAST ATTEMPT FAILED: %s\n", s.Error)
	}
}

// membersShown is the number of members that the status of a large cluster lists.
const membersShown = 50

func (c *cluster) printMembers(w io.Writer) {
	share := make(map[string]float64)
	for _, m := range c.Ring.Members {
		share[m.Name] = m.Share
	}
	members := c.Members.Members
	if len(members) > membersShown {
		serves := func(m admin.Member) int {
			if m.State != "serving" {
				return 0
			}
			return 1
		}
		members = slices.Clone(members)
		slices.SortStableFunc(members, func(a, b admin.Member) int { return cmp.Compare(serves(a), serves(b)) })
		states := make(map[string]int)
		for _, m := range members {
			states[m.State]++
		}
		fmt.Fprintf(w, "\n%d members:", len(members))
		for _, state := range slices.Sorted(maps.Keys(states)) {
			fmt.Fprintf(w, " %d %s", states[state], state)
		}
		fmt.Fprintf(w, "; the list has %d, first the members that do not serve\n", membersShown)
		members = members[:membersShown]
	}
	printTable(w, "\nMEMBER\tSTATE\tOWNS\tADDRESS\tREGION", members, func(m admin.Member) string {
		name := m.Name
		if m.Self {
			name += " (this one)"
		}
		return fmt.Sprintf("%s\t%s\t%.1f %%\t%s\t%s", name, m.State, 100*share[m.Name], m.Addr, cmp.Or(m.Region, "-"))
	})
}

// printDecisions prints the sums over the members that responded, and names the other
// members.
func (c *cluster) printDecisions(w io.Writer) {
	t := &c.Totals
	fmt.Fprintf(w, "\nchecks of %d of %d members since each started", len(t.Answered), len(t.Answered)+len(t.Missing))
	if len(t.Missing) > 0 {
		fmt.Fprintf(w, "; without %s, which did not answer", strings.Join(t.Missing, ", "))
	}
	printTable(w, "\nDECIDED BY\tALLOWED\tDENIED", slices.Sorted(maps.Keys(t.Decisions)), func(source string) string {
		return fmt.Sprintf("%s\t%d\t%d", source, t.Decisions[source].Allowed, t.Decisions[source].Denied)
	})
}

// printTable prints a header, and a row for each item, with aligned columns. Tabs separate the cells.
func printTable[T any](w io.Writer, header string, items []T, row func(T) string) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, header)
	for _, item := range items {
		fmt.Fprintln(table, row(item))
	}
	return table.Flush()
}

// limitsShown is the maximum number of limits, and of factors, that weir status prints. /v1/totals returns more limits.
const limitsShown = 20

// printLimits prints the limits that have denied checks, including denials as shadows. A
// limit that the rules of this node do not enforce for all keys is printed even without
// denials. The limits with the most denials come first, and at most limitsShown are printed.
func (c *cluster) printLimits(w io.Writer) {
	limits, modes := make(map[string]admin.Total), make(map[string]string)
	maps.Copy(limits, c.Totals.Limits)
	if c.Stats.Rules != nil {
		for _, rule := range c.Stats.Rules.Outcomes {
			if rule.Mode != "enforce" {
				modes[rule.Limit] = rule.Mode
				limits[rule.Limit] = c.Totals.Limits[rule.Limit]
			}
		}
	}
	denials := func(name string) uint64 { return limits[name].Enforced.Denied + limits[name].Shadowed.Denied }
	maps.DeleteFunc(limits, func(name string, _ admin.Total) bool { return modes[name] == "" && denials(name) == 0 })
	if len(limits) == 0 {
		return
	}
	order := slices.Sorted(maps.Keys(limits))
	slices.SortStableFunc(order, func(a, b string) int { return cmp.Compare(denials(b), denials(a)) })
	printTable(w, "\nLIMIT\tDENIED\tWOULD HAVE DENIED\tOF CHECKS", order[:min(limitsShown, len(order))], func(name string) string {
		total, shown := limits[name], name
		if mode := modes[name]; mode != "" {
			shown += " (" + mode + ")"
		}
		checks := total.Enforced.Allowed + total.Enforced.Denied + total.Shadowed.Allowed + total.Shadowed.Denied
		return fmt.Sprintf("%s\t%d\t%d\t%d", shown, total.Enforced.Denied, total.Shadowed.Denied, checks)
	})
	if more := len(order) - limitsShown; more > 0 {
		fmt.Fprintf(w, "and %d more: GET /v1/totals has them\n", more)
	}
}

// printTop prints the keys that are denied most and held most, over all members.
func (c *cluster) printTop(w io.Writer) {
	if len(c.Top.Denied)+len(c.Top.Held) == 0 {
		return
	}
	if len(c.Top.Denied) > 0 {
		printTable(w, "\nDENIED MOST\tKEY\tDENIALS, ABOUT", c.Top.Denied, func(k admin.TopKey) string {
			return fmt.Sprintf("%s\t%s\t%d", k.Limit, nameOf(k), k.Denials)
		})
	}
	if len(c.Top.Held) > 0 {
		printTable(w, "\nHELD NOW\tKEY\tUNITS\tDENIALS, ABOUT", c.Top.Held, func(k admin.TopKey) string {
			return fmt.Sprintf("%s\t%s\t%d of %d\t%d", k.Limit, nameOf(k), k.Held, k.HeldMost, k.Denials)
		})
	}
	if len(c.Top.Missing) > 0 {
		fmt.Fprintf(w, "without %s, which did not answer\n", strings.Join(c.Top.Missing, ", "))
	}
}
