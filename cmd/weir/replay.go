package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/weir-go/weir/audit/replay"
	"github.com/weir-go/weir/rules"
)

// replayCommand decides recorded requests again.
type replayCommand struct {
	Rules string    `required:"" placeholder:"FILE" help:"the rules file that decides the requests"`
	From  time.Time `placeholder:"TIME" help:"ignore records before this time, such as 2026-12-31T09:00:00Z"`
	Until time.Time `placeholder:"TIME" help:"ignore records from this time on"`
	Keys  int       `default:"10" help:"the number of keys to show of each limit, those with the most changes"`
	JSON  bool      `name:"json" help:"print the result as JSON"`
	Files []string  `arg:"" help:"files of audit records, from all nodes; - is standard input"`
}

// Help describes the records that a replay needs.
func (*replayCommand) Help() string {
	return "The nodes must have recorded admissions: -audit_sample 1, or a part of the keys. Counts are empty at the first record.\n\n  weir audit replay -rules new.yaml node-1.jsonl node-2.jsonl"
}

func (c *replayCommand) run(stdout, _ io.Writer) (int, error) {
	text, err := readRules(c.Rules)
	if err != nil {
		return bad, err
	}
	set, err := rules.Parse(text.Name, text.Bytes)
	if err != nil {
		return bad, err
	}
	var inputs []replay.Input
	for _, name := range c.Files {
		in := replay.Input{Name: name, Reader: os.Stdin}
		if name != "-" {
			file, err := os.Open(name)
			if err != nil {
				return bad, err
			}
			defer file.Close()
			in.Reader = file
		}
		inputs = append(inputs, in)
	}
	report, err := replay.Run(context.Background(), set, inputs, replay.Options{From: c.From, Until: c.Until, Keys: c.Keys})
	if err != nil {
		return bad, err
	}
	out := &checkedWriter{Writer: stdout}
	if c.JSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		_ = encoder.Encode(report)
	} else {
		printReplay(out, report)
	}
	if out.err == nil && len(report.Limits) == 0 {
		return bad, errors.New("weir audit replay: no record was decided again: record with -audit_sample 1, and name rules with the same limits")
	}
	return ok, out.err
}

func printReplay(w io.Writer, r *replay.Report) {
	fmt.Fprint(w, counted(r.Records, "record"))
	if len(r.Limits) > 0 {
		printDecisions(w, r)
	}
	fmt.Fprintln(w)
	for _, note := range slices.Sorted(maps.Keys(r.Notes)) {
		fmt.Fprintf(w, "%d %s\n", r.Notes[note], note)
	}
	if r.Damaged > 0 {
		fmt.Fprintf(w, "%s damaged:\n", counted(r.Damaged, "line"))
		for _, line := range r.Damages {
			fmt.Fprintln(w, " ", line)
		}
	}
}

func printDecisions(w io.Writer, r *replay.Report) {
	fmt.Fprintf(w, " from %s to %s\n", r.First.Format(time.RFC3339), r.Last.Format(time.RFC3339))
	printTable(w, "\nLIMIT\tRECORDED ALLOWED\tDENIED\tREPLAYED ALLOWED\tDENIED\tNEWLY DENIED\tNEWLY ALLOWED", r.Limits, func(l replay.Limit) string {
		return fmt.Sprintf("%s\t%d\t%d\t%d\t%d\t%d\t%d", shown(l.Name), l.Recorded.Allowed, l.Recorded.Denied, l.Replayed.Allowed, l.Replayed.Denied, l.NewlyDenied, l.NewlyAllowed)
	})
	for _, l := range r.Limits {
		if len(l.Keys) > 0 {
			printTable(w, "\nKEY OF "+shown(l.Name)+"\tNEWLY DENIED\tNEWLY ALLOWED", l.Keys, func(k *replay.Key) string {
				return fmt.Sprintf("%s\t%d\t%d", shown(cmp.Or(k.Key, k.ID.String())), k.NewlyDenied, k.NewlyAllowed)
			})
		}
	}
	fmt.Fprintf(w, "\n%.3f %% of the decisions are as recorded.", 100*r.Agreement())
}
