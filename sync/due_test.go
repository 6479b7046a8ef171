package countsync

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
)

func TestRegionReceivesStatementWhenDue(t *testing.T) {
	const now = int64(time.Hour)
	ago := func(d time.Duration) int64 { return now - int64(d) }
	long := ago(time.Minute)
	for _, c := range []struct {
		about   string
		account account
		balance balance
		reports int
		due     bool
	}{
		{"no reason for a statement", account{known: true, sent: long}, balance{}, 1, false},
		{"units are wanted", account{known: true, sent: long}, balance{wants: 5}, 0, true},
		{"units are wanted, and it has refused", account{known: true, sent: long, again: now + 1}, balance{wants: 5}, 0, false},
		{"what it has is unknown", account{sent: long}, balance{}, 0, true},
		{"units of it are spare", account{known: true, sent: ago(time.Second), received: 3}, balance{spare: 2}, 0, true},
		{"units of another are spare", account{known: true, sent: ago(time.Second)}, balance{spare: 2}, 0, false},
		{"its grant has to be renewed", account{known: true, sent: ago(time.Duration(renewAfter)), received: 3}, balance{}, 0, true},
		{"its grant is fresh", account{known: true, sent: ago(time.Second), received: 3}, balance{}, 0, false},
		{"units were spent", account{known: true, sent: long, reported: 1}, balance{spent: 2}, 1, true},
		{"units were spent, and the round has no reports left", account{known: true, sent: long, reported: 1}, balance{spent: 2}, 0, false},
		{"units were spent since a moment ago", account{known: true, sent: ago(time.Second / 2), reported: 1}, balance{spent: 2}, 1, false},
		{"the last statement has no answer yet", account{known: true, sent: ago(time.Second), waits: true}, balance{wants: 5}, 0, false},
		{"the last statement got no answer", account{known: true, sent: ago(time.Duration(answerTimeout)), waits: true}, balance{wants: 5}, 0, true},
		{"the last statement is too recent", account{known: true, sent: ago(ExchangeEvery / 2)}, balance{wants: 5}, 0, false},
		{"the first statement", account{known: true}, balance{wants: 5}, 0, true},
	} {
		x := &holding{whole: bucket.Limit{Algorithm: bucket.SlidingWindow, Rate: 100, Per: 10 * time.Second}}
		d := &dues{reports: c.reports}
		require.Equal(t, c.due, x.isDue(&c.account, &c.balance, Time{now, now}, d), c.about)
		require.Equal(t, c.due && c.balance.spent != 0, d.reports < c.reports, c.about)
	}
}
