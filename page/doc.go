// Package page is a web page that shows a running cluster: its members on the ring, checks per
// second by the kind of decision, their latency, denials by rule, the most requested and most
// denied keys, the use of a limit by a key, outages, and the rules in force. The page is
// embedded in the program, loads nothing from other origins, and is updated by server-sent
// events. uPlot draws its charts (files/uplot.license.txt).
//
//	p, err := page.New(page.Options{Source: &page.Node{Node: node}})
//	mux.Handle("/page/", http.StripPrefix("/page", p))
//
// The page is for operators. Protect it like the admin API, as admin.Options.Page does.
package page
