package bounds

// Row is a row of the table in docs/guarantees.md. There L is Healthy, C is Capacity, and c
// is Situation.Changes.
type Row struct {
	While  string // beginning of the first cell, the condition
	AtMost string
}

// Rows returns the table, with the bounds that Bound computes.
func Rows() []Row {
	return []Row{
		{
			"every node is connected to every other",
			"the bound of the algorithm, from any mix of nodes, and not one unit more",
		},
		{
			"a key is hot, so that its owner lends units of it (below)",
			"the same: they are spent when they are lent, and no lease outlasts the window",
		},
		{
			"nodes join",
			"the same, and the units in flight when authority moves (measured: at most one unit)",
		},
		{
			"the owner crashes",
			"L + ⌊C/16⌋ + 2a·RTT, for up to `Replicas` crashes in a row, each after the counts of the crash before were copied again (`Stats().Stream` reports the progress)",
		},
		{
			"an owner does not answer in time though it lives (slow",
			"2L in a window that holds it; `FailOpen`: L more for each node",
		},
		{
			"an owner reports a delay, and then freezes",
			"the same",
		},
		{
			"a link is down, but its ends are on one side",
			"the same as healthy, from 2 s after it went down; above 9 members, from 2 s after the first request over it ([why](partitions.md#who-watches-whom))",
		},
		{
			"a member is missing from this side",
			"all sides together L with `FairShare` and `FailClosed`, below 1.5·L with `MajorityShare`, in a window in which no member comes or goes; each change of connectivity c in it, or in the 2 s before (longer before if [a node is paused](partitions.md#timeouts-and-failure-detection) for 20 ms or more at a time), adds as much again. The leave, crash or freeze of a member that was the only way between others is one. `FailOpen`: L on each side, and by each node until its side agrees on a stand-in",
		},
		{
			"all missing members have ended",
			"L. If a firewall answers with resets in their place, L on each side. `FailClosed` and carried reservations: the row above",
		},
		{
			"the roster is below `Expect`",
			"the same, as of a roster of Expect",
		},
		{
			"all nodes stop and start again, with [snapshots](snapshots.md)",
			"after `Leave`: the same. After a crash: also the units that were spent since each node's last snapshot. `FailOpen`: L more for each node",
		},
		{
			"a `Global` limit, whether regions reach each other or not",
			"L in every window, over all regions together, except after [lost memory](regions.md#what-it-guarantees)",
		},
	}
}
