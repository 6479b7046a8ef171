package cluster

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/loglimit"
)

// gossipLog hands what memberlist logs to slog. What it calls an error is a
// warning here, at most one in logPace: any sender of packets to the port
// can cause them. All else is for debugging. After Close it is quiet.
type gossipLog struct {
	log  *slog.Logger
	ctx  context.Context // done once the cluster is closed
	pace loglimit.Line   // of what it calls an error
}

func (l *gossipLog) Write(line []byte) (int, error) {
	if l.ctx.Err() != nil {
		return len(line), nil
	}
	if bytes.HasPrefix(line, []byte("[ERR")) {
		if unlogged, due := l.pace.Due(time.Now()); due {
			l.log.Warn("the gossip library reported an error", "error", gossipText(line), "unlogged", unlogged)
			return len(line), nil
		}
	}
	if l.log.Enabled(l.ctx, slog.LevelDebug) {
		l.log.Debug("the gossip library logged a line", "text", gossipText(line))
	}
	return len(line), nil
}

// gossipText is a line without its level and without memberlist's prefix.
func gossipText(line []byte) string {
	text := strings.TrimSpace(string(line))
	if strings.HasPrefix(text, "[") {
		if _, rest, ok := strings.Cut(text, "] "); ok {
			text = rest
		}
	}
	return strings.TrimPrefix(text, "memberlist: ")
}
