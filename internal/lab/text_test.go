package lab

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTextIsReadWhileItIsWritten(t *testing.T) {
	var log Text
	written := make(chan struct{})
	go func() {
		defer close(written)
		for i := range 100 {
			fmt.Fprintf(&log, "level=WARN n=%d\n", i)
		}
	}()
	for len(log.Lines()) < 100 {
		_ = log.String()
	}
	<-written
	require.Equal(t, []string{"level=WARN n=42\n"}, log.Lines("WARN", "n=42"))
	require.Empty(t, log.Lines("WARN", "ERROR"))
}

func TestTextKeepsItsEnd(t *testing.T) {
	end := Text{Most: 4}
	fmt.Fprint(&end, "abc")
	require.Equal(t, "abc", end.String())
	fmt.Fprint(&end, "defg")
	require.Equal(t, "defg", end.String())
}
