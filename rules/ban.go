package rules

import (
	"fmt"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/enum"
	"github.com/weir-go/weir/internal/strictyaml"
)

const (
	maxBanDenials = 10_000
	minBan        = time.Second
)

// ban reads the ban of a rule. It returns the zero Ban if the rule has no ban, or a ban with an error.
func (p *parser) ban(v strictyaml.Value) (b weir.Ban) {
	if !v.Present() {
		return b
	}
	m := v.Map(banFields...)
	b.Denials = m.Get("denials").Required().Int(1, maxBanDenials)
	b.Within = duration(m.Get("within").Required(), minPer, maxPer)
	lengths := m.Get("for").Required()
	items := readItems(lengths)
	if len(items) > len(b.For) {
		lengths.Errorf("for has %d lengths: use at most %d, the last one applies to all further bans", len(items), len(b.For))
		return weir.Ban{}
	}
	good := b.Denials > 0 && b.Within > 0 && len(items) > 0
	for i, item := range items {
		if b.For[i] = duration(item, minBan, maxPer); b.For[i]%time.Second != 0 {
			item.Errorf("for is %s: use whole seconds", enum.Duration(b.For[i]))
		}
		good = good && b.For[i] > 0 && b.For[i]%time.Second == 0
	}
	if !good {
		return weir.Ban{}
	}
	return b
}

// checkBan reports an error for a ban in a rule whose denials ban no key, or in which the ban would hit
// other clients than the denied client.
func (p *parser) checkBan(r *Rule, v strictyaml.Value, isShadow bool) {
	refuse(v,
		conflict{r.key.isGlobal(), "ban in a rule with key global: use a key that names a client, because the ban would hit all clients"},
		conflict{r.key.lacking == together, "ban in a rule with missing_key: shared: use missing_key: ip or skip, because the ban would hit all clients without the key"},
		conflict{isShadow, "ban in a rule with shadow: remove ban or shadow, because a shadow denies nothing"},
		conflict{r.Queue > 0, "ban in a rule with queue: remove ban or queue, because the denials of a waiting request do not count"},
		conflict{r.Soft.Over > 0, "ban in a rule with soft: remove ban or soft"},
		conflict{r.isHeld(), "ban in a rule whose limits are all in_flight: add a limit with a rate, because only denials of such a limit ban a key"})
}

// describeBan returns a ban in words, like "20 denials per 1m ban for 1h".
func describeBan(b weir.Ban) string {
	var lengths []string
	for _, d := range b.For {
		if d > 0 {
			lengths = append(lengths, enum.Duration(d))
		}
	}
	return fmt.Sprintf("%d denials per %s ban for %s", b.Denials, enum.Duration(b.Within), strings.Join(lengths, ", then "))
}
