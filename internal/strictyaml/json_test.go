package strictyaml

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestUnquotedReadsQuotedValuesOfJSON(t *testing.T) {
	file, err := Parse("limits.json", []byte("{\"per\": \"1m30s\",\n \"loss\": \"5%\", \"rate\": 5, \"none\": \"\", \"list\": [1]}"))
	require.NoError(t, err)
	m := file.Root().Map("per", "loss", "rate", "none", "list")
	require.Equal(t, 90*time.Second, m.Get("per").Unquoted().Duration(0, time.Hour))
	require.Equal(t, 0.05, m.Get("loss").Unquoted().Percent())
	require.EqualValues(t, 5, m.Get("rate").Unquoted().Int(1, 9))
	require.NoError(t, file.Err())
	require.False(t, m.Get("absent").Unquoted().Present())
	require.Len(t, m.Get("list").Unquoted().List(), 1)
	m.Get("none").Unquoted().Duration(0, time.Hour)
	m.Get("per").Duration(0, time.Hour)
	require.EqualError(t, file.Err(), `limits.json:1:9: per is the text "1m30s": write it without quotes`+"\n"+`limits.json:2:35: none is the text "": write it without quotes`)
}

func TestValueReportsKindAndPosition(t *testing.T) {
	file, err := Parse("limits.yaml", []byte("a: text\nb: 5\nc: '5'\nd: {}"))
	require.NoError(t, err)
	m := file.Root().Map("a", "b", "c", "d")
	var texts []bool
	for _, field := range []string{"a", "b", "c", "d", "e"} {
		texts = append(texts, m.Get(field).IsText())
	}
	require.Equal(t, []bool{true, false, true, false, false}, texts)
	line, column := m.Get("c").Position()
	require.Equal(t, []int{3, 4}, []int{line, column})
	line, column = m.Get("e").Position()
	require.Equal(t, []int{1, 1}, []int{line, column}, "absent: the map")
	require.EqualError(t, NewError("limits.yaml", 3, 4, "too much"), "limits.yaml:3:4: too much")
}
