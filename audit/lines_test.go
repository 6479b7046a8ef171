package audit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/audit"
)

// writes records the bytes of each call of Write. Each element of takes is the number of
// bytes that a call accepts.
type writes struct {
	calls [][]byte
	takes []int // all bytes are accepted after the last element
	err   error // returned if not all bytes are accepted
}

func (w *writes) Write(p []byte) (int, error) {
	n, err := len(p), error(nil)
	if len(w.takes) > len(w.calls) {
		n, err = w.takes[len(w.calls)], w.err
	}
	w.calls = append(w.calls, bytes.Clone(p[:n]))
	return n, err
}

func TestBatchIsWrittenByOneCallOfWrite(t *testing.T) {
	w := new(writes)
	batch := []audit.Record{{
		Time: time.Date(2026, 11, 23, 14, 0, 12, 345_000_000, time.UTC), Node: "api-1-0af3", Region: "eu", Limit: "per <hour>", Version: 7, ID: audit.ID{0xff},
		Key: "line\nend", Units: 2, Source: "owner", RetryAfterMS: 1500, Shadow: true, Trace: "4bf9", Error: "no \"quotes\"",
		Operation: "take", Request: 9, Asks: 3, Refused: true, Critical: true, Paused: true, Factor: 60, Algorithm: "token_bucket", Rate: 5, Per: "1m", Burst: 7, Keep: 1, Calendar: "day", Overridden: true, Capacity: 7, Used: 7,
		Decided: time.Date(2026, 11, 23, 14, 0, 12, 344_000_000, time.UTC), TookUS: 12, Route: "GET /{id}", Client: "192.0.2.0/24", Agent: "curl/8", Tier: "gold", Sample: 0.5,
	}, {Allowed: true, Remaining: 9}}
	kept, err := audit.JSONLines(w).Write(t.Context(), batch)
	require.NoError(t, err)
	require.Equal(t, 2, kept)
	require.Len(t, w.calls, 1)
	require.Equal(t, `{"time":"2026-11-23T14:00:12.345Z","node":"api-1-0af3","region":"eu","limit":"per <hour>","version":7,`+
		`"id":"ff000000000000000000000000000000","key":"line\nend","units":2,"operation":"take","request":9,"asks":3,"refused":true,"critical":true,"allowed":false,"shadow":true,"paused":true,`+
		`"algorithm":"token_bucket","rate":5,"per":"1m","burst":7,"keep":1,"calendar":"day","overridden":true,"factor":60,"capacity":7,"used":7,`+
		`"source":"owner","remaining":0,"retry_after_ms":1500,"decided":"2026-11-23T14:00:12.344Z","took_us":12,`+
		`"route":"GET /{id}","client":"192.0.2.0/24","user_agent":"curl/8","tier":"gold","sample":0.5,"trace":"4bf9","error":"no \"quotes\""}
{"time":"0001-01-01T00:00:00Z","node":"","limit":"","version":0,"id":"00000000000000000000000000000000","units":0,"operation":"","allowed":true,"algorithm":"","rate":0,"capacity":0,"used":0,"source":"","remaining":9,"retry_after_ms":0,"took_us":0,"sample":0}
`, string(w.calls[0]))
	for i, line := range bytes.Split(bytes.TrimSuffix(w.calls[0], []byte{'\n'}), []byte{'\n'}) {
		var read audit.Record
		require.NoError(t, json.Unmarshal(line, &read))
		require.Equal(t, batch[i], read)
	}
}

func TestPartialWriteLosesOneLine(t *testing.T) {
	one := []audit.Record{{Limit: "a"}}
	var line bytes.Buffer
	_, err := audit.JSONLines(&line).Write(t.Context(), one)
	require.NoError(t, err)
	broken := errors.New("no space left on device")
	for _, test := range []struct {
		takes, kept int
		err, want   error
	}{
		{0, 0, broken, broken},
		{1, 0, broken, broken},
		{line.Len() - 1, 0, broken, broken},
		{line.Len(), 1, broken, broken},
		{line.Len() + 5, 1, nil, io.ErrShortWrite},
		{2*line.Len() - 1, 1, nil, io.ErrShortWrite},
	} {
		w := &writes{takes: []int{test.takes}, err: test.err}
		sink := audit.JSONLines(w)
		kept, err := sink.Write(t.Context(), []audit.Record{one[0], one[0]})
		require.ErrorIs(t, err, test.want)
		require.Equal(t, test.kept, kept, "of %d bytes", test.takes)
		kept, err = sink.Write(t.Context(), one)
		require.NoError(t, err)
		require.Equal(t, 1, kept)

		whole := 0
		for text := range strings.Lines(string(bytes.Join(w.calls, nil))) {
			if text == line.String() {
				whole++
			}
		}
		// A line without its newline is complete for a reader once the next line has begun.
		require.GreaterOrEqual(t, whole, test.kept+1)
		require.LessOrEqual(t, whole, test.kept+2)
	}
}

func TestStalledConnectionFailsBatchInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer here.Close()
		defer there.Close()
		sink := audit.JSONLines(here)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		begun := time.Now()
		kept, err := sink.Write(ctx, make([]audit.Record, 2))
		require.Zero(t, kept)
		require.ErrorContains(t, err, "timeout")
		require.Equal(t, 3*time.Second, time.Since(begun))
		<-ctx.Done() // at the same instant, before or after the write
		_, err = sink.Write(ctx, make([]audit.Record, 2))
		require.ErrorIs(t, err, context.DeadlineExceeded)

		go func() { _, _ = io.Copy(io.Discard, there) }()
		ctx, cancel = context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		kept, err = sink.Write(ctx, make([]audit.Record, 2))
		require.NoError(t, err, "the deadline of the batch before")
		require.Equal(t, 2, kept)
	})
}

// With any bytes in a key or an error, a record is a single line, and is read as written, with U+FFFD for
// bytes that are not UTF-8.
func FuzzLines(f *testing.F) {
	f.Add("user 1", "limit", "trace", "error", uint64(1), int64(-1), true)
	f.Add("\n\r\x00\xff\u2028\"\\", "{", "}", "\n", uint64(1<<63), int64(1<<62), false)
	f.Fuzz(func(t *testing.T, key, limit, trace, wrong string, version uint64, units int64, allowed bool) {
		r := audit.Record{Time: time.Unix(units%1e10, 0).UTC(), Key: key, Limit: limit, Trace: trace, Error: wrong, Version: version, Units: units, Remaining: ^units, Allowed: allowed, Route: limit, Agent: key, Tier: trace}
		var out bytes.Buffer
		kept, err := audit.JSONLines(&out).Write(t.Context(), []audit.Record{r, r})
		require.NoError(t, err)
		require.Equal(t, 2, kept)
		lines := strings.SplitAfter(out.String(), "\n")
		require.Len(t, lines, 3)
		require.Empty(t, lines[2])
		for _, line := range lines[:2] {
			var read audit.Record
			require.NoError(t, json.Unmarshal([]byte(line), &read))
			want := r
			for _, text := range []*string{&want.Key, &want.Limit, &want.Trace, &want.Error, &want.Route, &want.Agent, &want.Tier} {
				if !utf8.ValidString(*text) {
					*text = string([]rune(*text))
				}
			}
			require.Equal(t, want, read)
		}
	})
}

// A text is read as the ID that has this text in lower case, or is refused.
func FuzzID(f *testing.F) {
	f.Add("00000000000000000000000000000001")
	for _, text := range []string{"ABCDEFabcdef00000000000000000000", "", "ab", strings.Repeat("g", 32), strings.Repeat("0", 33)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var id audit.ID
		if err := id.UnmarshalText([]byte(text)); err != nil {
			require.Zero(t, id)
			return
		}
		require.Equal(t, strings.ToLower(text), id.String())
	})
}

// The comments of the fields of Record are the reference of the JSON format.
func TestEveryRecordFieldHasComment(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "record.go", nil, parser.ParseComments)
	require.NoError(t, err)
	fields := 0
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, is := n.(*ast.TypeSpec); is && spec.Name.Name == "Record" {
			for _, field := range spec.Type.(*ast.StructType).Fields.List {
				require.NotEmpty(t, field.Comment.Text(), "Record.%s", field.Names[0])
				require.Regexp(t, `json:"\w+`, field.Tag.Value, "Record.%s", field.Names[0])
				fields += len(field.Names)
			}
		}
		return true
	})
	require.Equal(t, reflect.TypeFor[audit.Record]().NumField(), fields)
}
