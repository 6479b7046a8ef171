package page

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testnode"
	"github.com/weir-go/weir/rules"
)

func TestViewerSwitchesRules(t *testing.T) {
	node := testnode.Start(t, weir.Config{})
	book := testnode.Book(t, node, "rules: [{name: api, key: user, limit: {rate: 60, per: 1h}}]")
	_, url := serve(t, Options{Source: &Node{Node: node, Book: book}, Book: book})
	v, _ := look(t, url+"/events")
	var s shownSnapshot
	v.readEvent(eventSnapshot, &s)
	require.Equal(t, []string{"*", "api"}, s.Switchable)
	for _, c := range []struct {
		about, body string
		status      int
		text        string
		mode        rules.Mode // mode of the rule api afterwards
	}{
		{"a switch without an author", `{"rule":"api","mode":"off","minutes":5}`, 400, "name yourself", rules.Enforce},
		{"a switch without an end", `{"rule":"api","mode":"off","by":"jo"}`, 400, "use 1 to 10080", rules.Enforce},
		{"a switch for too long", `{"rule":"api","mode":"off","minutes":10081,"by":"jo"}`, 400, "use 1 to 10080", rules.Enforce},
		{"an unknown mode", `{"rule":"api","mode":"on","minutes":5,"by":"jo"}`, 409, "use enforce, shadow, off", rules.Enforce},
		{"an unknown rule", `{"rule":"apis","mode":"off","minutes":5,"by":"jo"}`, 409, `there is no rule "apis"`, rules.Enforce},
		{"an unknown field", `{"rules":"api"}`, 400, "unknown field", rules.Enforce},
		{"a switch", `{"rule":"api","mode":"shadow","minutes":5,"by":"jo","reason":"an incident"}`, 204, "", rules.Shadow},
		{"all rules", `{"rule":"*","mode":"off","minutes":5,"by":"jo","reason":"an attack"}`, 204, "", rules.Shadow},
		{"the end of a switch", `{"rule":"api","mode":""}`, 204, "", rules.Off},
	} {
		t.Run(c.about, func(t *testing.T) {
			answer, err := http.Post(url+"/switch", "application/json", strings.NewReader(c.body))
			require.NoError(t, err)
			defer answer.Body.Close()
			text, err := io.ReadAll(answer.Body)
			require.NoError(t, err)
			require.Equal(t, c.status, answer.StatusCode, string(text))
			require.Contains(t, string(text), c.text)
			now := book.Current()
			require.Equal(t, c.mode, now.Mode(now.Rules()[0]))
		})
	}
	switches := book.Switches()
	require.Len(t, switches, 1)
	require.Equal(t, []string{"jo", "an attack"}, []string{switches[0].By, switches[0].Reason})
	require.False(t, switches[0].Until.IsZero())
}

func TestPageWithoutBookSwitchesNothing(t *testing.T) {
	node := testnode.Start(t, weir.Config{})
	book := testnode.Book(t, node, "rules: [{name: api, key: user, limit: {rate: 60, per: 1h}}]")
	_, url := serve(t, Options{Source: &Node{Node: node, Book: book}})
	answer, err := http.Post(url+"/switch", "application/json", strings.NewReader(`{"rule":"api","mode":"off","minutes":5,"by":"jo"}`))
	require.NoError(t, err)
	answer.Body.Close()
	require.Equal(t, http.StatusNotFound, answer.StatusCode)
	require.Empty(t, book.Switches())
}
