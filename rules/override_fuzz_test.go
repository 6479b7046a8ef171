package rules

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// Any published value is read as the override that it contains, or is refused.
func FuzzOverride(f *testing.F) {
	id := [16]byte{1, 2, 3}
	o := Override{Rate: 5, By: "ops"}
	f.Add(publishedName("user/hour", id), o.published())
	f.Add(publishedName("", id), []byte(`{"rate":-1,"per":-1,"burst":9223372036854775807,"until":-9223372036854775808,"at":9223372036854775807}`))
	f.Add("override/a/zz", []byte(`{}`))
	f.Add("override/00000000000000000000000000000000", []byte(`[]`))
	f.Fuzz(func(t *testing.T, name string, value []byte) {
		o, err := readOverride(weir.Published{Name: name, Value: value})
		if err != nil {
			return
		}
		require.Len(t, publishedName(o.Limit, o.ID), len(name), "no more and no less than its limit and id are in its name")
		again, err := readOverride(weir.Published{Name: publishedName(o.Limit, o.ID), Value: o.published()})
		require.NoError(t, err)
		require.Equal(t, o.Rate, again.Rate)
		require.Equal(t, o.Per, again.Per)
		require.Equal(t, o.Burst, again.Burst)
		require.True(t, o.Until.Equal(again.Until))
		_ = o.applyTo(weir.Limit{Name: "x", Rate: 1, Per: 1}).Validate()
	})
}
