package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"time"
)

// lines is JSONLines.
type lines struct {
	w    io.Writer
	torn bool // what was written last ends within a line

	batch bytes.Buffer
	json  *json.Encoder // to batch
	ends  []int         // of each line in batch
}

// JSONLines is a Sink that writes each record as a line of JSON, a batch with one call of
// Write. After a call that wrote a part of a line, the next begins on a line of its own,
// so that a reader loses that record alone.
//
// A Write that does not return holds records up, and never checks: the queue fills and
// what comes then is dropped. A writer with SetWriteDeadline (connections, pipes) is given
// Options.Timeout as deadline, and a batch that misses it has failed. With any
// other, Log.Close returns when its context is done, and the Log's goroutine ends when
// Write returns.
//
// To rotate and to close the writer is left to the caller.
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
		_ = d.SetWriteDeadline(deadline) // a regular file has none
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
