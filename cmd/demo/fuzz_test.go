package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever the command line says, it is a run that can be made, or refused in words.
func FuzzOptions(f *testing.F) {
	f.Add("-nodes 3 -duration 36s -limit 30")
	f.Add("-regions 4 -rate 600 -serve")
	f.Add("-nodes 99999999999999999999 -replicas -9 x")
	f.Fuzz(func(t *testing.T, line string) {
		o, err := parse(strings.Fields(line), io.Discard)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		require.True(t, o.nodes >= 2 && o.nodes <= 9 && o.rate > 0 && o.limit > 0)
	})
}

// Whatever a gateway answers, it counts, or is an error.
func FuzzAnswer(f *testing.F) {
	f.Add(200, `{"Source":"owner","From":1,"To":2}`)
	f.Add(429, `{"Source":"owner","From":9223372036854775808}`)
	f.Add(500, "owner")
	f.Fuzz(func(t *testing.T, status int, decided string) {
		var a answer
		err := a.read(&http.Response{StatusCode: status, Header: http.Header{decidedHeader: {decided}}})
		require.True(t, err != nil || (status == http.StatusOK) == a.allowed)
	})
}
