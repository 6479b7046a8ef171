package bounds

// Row is a row of the table in docs/guarantees.md. There L is Healthy, C is Capacity, and c
// is Situation.Changes.
type Row struct {
	While  string // the first cell, the condition
	AtMost string
}

// Rows returns the table, with the bounds that Bound computes.
func Rows() []Row {
	return []Row{
		{
			"every node is connected to every other, and every owner answers in time",
			"the bound of the algorithm, from any mix of nodes",
		},
		{
			"an owner lends units of a hot key",
			"the same",
		},
		{
			"nodes join, leave, deploy in order",
			"the same, and the units in flight when authority moves (measured: at most one unit)",
		},
		{
			"the owner crashes",
			"L + ⌊C/16⌋ + 2a·RTT",
		},
		{
			"an owner lives, and does not answer in time",
			"2L in a window that contains this time; `FailOpen`: L more for each node",
		},
		{
			"a link is down, but its ends are on one side",
			"L, if the link went down more than 2 s before",
		},
		{
			"a member is missing from this side",
			"all sides together L with `FairShare` and `FailClosed`, below 1.5·L with `MajorityShare`, and as much again for each change of connectivity. `FailOpen`: L on each side",
		},
		{
			"all missing members have ended, and [`ForgetRefused`](partitions.md#two-nodes) is set",
			"L",
		},
		{
			"the roster is below `Expect`",
			"as if members were missing from a roster of Expect",
		},
		{
			"all nodes stop and start again, with [snapshots](snapshots.md) of a durable limit",
			"L after `Leave`. After a crash, in addition the units that were spent since the last snapshot of each node",
		},
		{
			"a `Global` limit, whether regions reach each other or not",
			"L over all regions together, unless a region has [lost its memory](regions.md#what-it-guarantees)",
		},
	}
}
