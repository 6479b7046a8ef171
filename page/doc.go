// Package page is a web page that shows a cluster while it works: its members on the
// ring, checks per second by where they were decided, how long they took, denials by rule,
// the keys that are asked for and denied most, one key's use of its limit, outages and the
// rules in force. It is embedded in the program, loads nothing from elsewhere, and is kept
// up to date by server-sent events. uPlot draws its charts (files/uplot.license.txt).
//
//	p, err := page.New(page.Options{Source: &page.Node{Node: node}})
//	mux.Handle("/page/", http.StripPrefix("/page", p))
//
// The page is for operators: put it behind what guards the admin API, as
// admin.Options.Page does.
package page
