package gossip

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/loglimit"
)

// logWriter writes the log lines of memberlist to slog. An error of memberlist is a warning here, at
// most a single line in loglimit.Every: any sender of packets to the port can cause errors. All other
// lines have the level debug. logWriter stops logging when ctx is done.
type logWriter struct {
	log    *slog.Logger
	ctx    context.Context
	errors loglimit.Line
}

func (w *logWriter) Write(line []byte) (int, error) {
	if w.ctx.Err() != nil {
		return len(line), nil
	}
	if bytes.HasPrefix(line, []byte("[ERR")) {
		if unlogged, due := w.errors.Due(time.Now()); due {
			w.log.Warn("the gossip library reported an error", "error", textOf(line), "unlogged", unlogged)
			return len(line), nil
		}
	}
	if w.log.Enabled(w.ctx, slog.LevelDebug) {
		w.log.Debug("the gossip library logged a line", "text", textOf(line))
	}
	return len(line), nil
}

// textOf returns a line without its level and without the prefix of memberlist.
func textOf(line []byte) string {
	text := strings.TrimSpace(string(line))
	if strings.HasPrefix(text, "[") {
		if _, rest, ok := strings.Cut(text, "] "); ok {
			text = rest
		}
	}
	return strings.TrimPrefix(text, "memberlist: ")
}
