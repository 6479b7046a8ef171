package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"time"
)

// lines is the Sink of JSONLines.
type lines struct {
	w    io.Writer
	torn bool // the last write ended within a line

	batch bytes.Buffer
	json  *json.Encoder // writes to batch
	ends  []int         // end of each line in batch
}

// JSONLines returns a Sink that writes each record as a line of JSON, and a batch with a
// single Write. If a Write ends within a line, the records from that line on are lost, and the
// next batch begins on a new line.
//
// A Write that does not return delays records, but never checks: the queue becomes full,
// and further records are dropped. If the writer supports SetWriteDeadline (connections,
// pipes), a Write that takes longer than Options.Timeout fails. With any other writer,
// such as a regular file, Options.Timeout has no effect. Log.Close returns when its context
// is done, and the goroutine of the Log ends when Write returns.
//
// The caller must rotate and close the writer.
func JSONLines(w io.Writer) Sink {
	l := &lines{w: w}
	l.json = json.NewEncoder(&l.batch)
	l.json.SetEscapeHTML(false)
	return l
}

func (l *lines) Write(ctx context.Context, batch []Record) (kept int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	l.batch.Reset()
	l.ends = l.ends[:0]
	if l.torn {
		l.batch.WriteByte('\n')
	}
	for i := range batch {
		if err := l.json.Encode(&batch[i]); err != nil {
			return 0, err
		}
		l.ends = append(l.ends, l.batch.Len())
	}
	if d, ok := l.w.(interface{ SetWriteDeadline(time.Time) error }); ok {
		deadline, _ := ctx.Deadline()
		_ = d.SetWriteDeadline(deadline) // an error means that the file has no deadlines
	}
	n, err := l.w.Write(l.batch.Bytes())
	if err == nil && n < l.batch.Len() {
		err = io.ErrShortWrite
	}
	for kept < len(l.ends) && l.ends[kept] <= n {
		kept++
	}
	if n > 0 {
		l.torn = l.batch.Bytes()[min(n, l.batch.Len())-1] != '\n'
	}
	return kept, err
}
