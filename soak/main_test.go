package main

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/lab"
)

func TestFlagsOutOfRangeAreRefusedByName(t *testing.T) {
	for flag, value := range map[string]string{"-for": "1s", "-nodes": "2", "-rate": "1"} {
		_, err := parse([]string{flag, value}, io.Discard)
		require.ErrorContains(t, err, flag+" is")
	}
	_, err := parse([]string{"more"}, io.Discard)
	require.ErrorContains(t, err, `"more"`)
}

func TestASeedIsDrawnUnlessOneIsGiven(t *testing.T) {
	for args, want := range map[string]uint64{"": 0, "-seed=7": 7} {
		o, err := parse(strings.Fields(args), io.Discard)
		require.NoError(t, err)
		require.NotZero(t, o.seed)
		require.True(t, want == 0 || o.seed == want)
	}
}

func TestEveryConnectionOfAProcessIsEnded(t *testing.T) {
	if !lab.Signals {
		t.Skip("this system has no descriptors to find connections by")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	one, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer one.Close()
	other, err := l.Accept()
	require.NoError(t, err)
	defer other.Close()
	cut, err := breakConnections()
	require.NoError(t, err)
	require.GreaterOrEqual(t, cut, 2)
	require.NoError(t, one.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err = one.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	again, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err, "it listens as before")
	again.Close()
}
