package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// redraw is how often a terminal's table is drawn; the figures in it are those
// of the last second.
const (
	stepInterval = 10 * time.Millisecond

	redraw   = 250 * time.Millisecond
	averaged = int(time.Second / redraw)
)

// busiestShown is how many clients the table shows.
const busiestShown = 4

// monitor makes frames of what the fleet and the tally know.
type monitor struct {
	fleet  *fleet
	tally  *tally
	begun  time.Time
	length time.Duration
	coming []step  // those that have not happened yet
	slices []slice // the last second's, the newest last
	taken  []time.Time
}

// take notes what happened since it was called last.
func (m *monitor) take(now time.Time) {
	m.slices = append(m.slices, m.tally.next())
	m.taken = append(m.taken, now)
	if len(m.slices) > averaged {
		m.slices = m.slices[1:]
		m.taken = m.taken[len(m.taken)-averaged-1:]
	}
}

// frame is what there is to see now.
func (m *monitor) frame(now time.Time) *frame {
	f := &frame{
		elapsed: now.Sub(m.begun), duration: m.length, begun: m.begun,
		limit: m.fleet.limit, per: m.fleet.per,
		standing: m.tally.standing(), next: "then the verdict",
	}
	if len(m.coming) > 0 {
		c := m.coming[0]
		in := max(0, c.after-f.elapsed)
		f.next = "next: " + c.String()
		if in > 0 {
			f.next += fmt.Sprintf(" in %.0f s", in.Seconds())
		}
	}
	over := now.Sub(m.begun)
	if len(m.taken) > len(m.slices) {
		over = m.taken[len(m.taken)-1].Sub(m.taken[0])
	}
	var asks [clients]int
	for _, s := range m.slices {
		for client, n := range s.asks {
			asks[client] += n
		}
	}
	f.clients = m.busiest(asks, over, now)

	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	f.events = slices.Clone(m.fleet.events)
	f.nodes = m.fleet.nodes
	for i, inc := range m.fleet.current {
		if inc == nil || inc.condition == gone && i >= m.fleet.nodes {
			continue
		}
		row := gatewayRow{
			number: i + 1, condition: inc.condition, over: over, owns: inc.report.Owns, lag: inc.report.Stream.Lag,
			sees: sights(inc.report, len(m.fleet.current)),
		}
		if inc.process != nil {
			row.pid = inc.process.PID()
		}
		for _, s := range m.slices {
			row.counts.add(&s.gateways[i])
		}
		f.gateways = append(f.gateways, row)
	}
	return f
}

// busiest is the clients that asked most.
func (m *monitor) busiest(asks [clients]int, over time.Duration, now time.Time) []clientRow {
	order := make([]int, clients)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(asks[b], asks[a]) })
	order = order[:busiestShown]
	slices.Sort(order) // so that rows of much the same pace keep their places
	var rows []clientRow
	for _, client := range order {
		rows = append(rows, clientRow{
			name:  clientName(client),
			asks:  int(float64(asks[client]) / over.Seconds()),
			lived: m.tally.lately(client, now.UnixNano(), m.fleet.per),
		})
	}
	return rows
}

// sights sorts what a gateway sees by the members' places.
func sights(r report, gateways int) []sight {
	all := make([]sight, gateways)
	for i := range all {
		all[i].number = i + 1
	}
	for _, m := range r.Members {
		if i := gatewayOf(m.Name); i >= 0 && i < gateways {
			all[i].states = append(all[i].states, m.State)
		}
	}
	return all
}
