package rules

import (
	"encoding/hex"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// Any published value is read as the override that it contains, or is refused.
func FuzzOverride(f *testing.F) {
	id := [16]byte{1, 2, 3}
	publish := func(o *Override) []byte {
		value, _ := json.Marshal(o)
		return value
	}
	read := func(name string, value []byte) (controlled, error) {
		return controlKinds[0].read(weir.Published{Name: overridePrefix + name, Value: value})
	}
	o := Override{Rate: 5, Control: Control{By: "ops", Reason: "a trial"}}
	f.Add("user/hour/"+hex.EncodeToString(id[:]), publish(&o))
	f.Add("/"+hex.EncodeToString(id[:]), []byte(`{"rate":1,"per":-1,"burst":9223372036854775807,"until":"0000-01-01T00:00:00Z","at":"9999-12-31T23:59:59.999999999Z"}`))
	f.Add("a/zz", []byte(`{}`))
	f.Add("00000000000000000000000000000000", []byte(`[]`))
	f.Fuzz(func(t *testing.T, name string, value []byte) {
		first, err := read(name, value)
		if err != nil {
			return
		}
		o := *first.(*Override)
		require.Len(t, publishedName(o.Limit, o.ID), len(overridePrefix+name), "no more and no less than its limit and id are in its name")
		second, err := read(name, publish(&o))
		require.NoError(t, err)
		again := second.(*Override)
		require.Equal(t, o.Rate, again.Rate)
		require.Equal(t, o.Per, again.Per)
		require.Equal(t, o.Burst, again.Burst)
		require.Equal(t, o.Reason, again.Reason)
		require.True(t, o.Until.Equal(again.Until))
		_ = o.applyTo(&Limit{base: weir.Limit{Name: "x", Rate: 1, Per: 1}}).Validate()
	})
}
