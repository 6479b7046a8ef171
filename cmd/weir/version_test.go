package main

import (
	"bytes"
	"io"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVersionNamesGoAndThePeerProtocol(t *testing.T) {
	var out bytes.Buffer
	require.Equal(t, ok, run([]string{"version"}, &out, io.Discard))
	require.Regexp(t, `^weir \S.*, `+runtime.Version()+` \w+/\w+, peer protocol \d+\n$`, out.String())
}
