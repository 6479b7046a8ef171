package envoylimit

import (
	"errors"
	"os"
	"slices"
)

// watch is the state of Service.Watch.
type watch struct {
	service   *Service
	path      string
	seen      []file // files that need no further attempt unless they change
	complaint string // the error that was logged last; empty after a success
}

// poll reads the files, and puts them in force if they have changed. An unchanged
// configuration is not parsed again, because most nodes are idle.
func (w *watch) poll() {
	files, err := readFiles(w.path)
	switch {
	case err != nil:
		w.seen = nil
	case slices.Equal(files, w.seen):
		return
	default:
		w.seen = files
		err = w.use(files)
	}
	switch {
	case err == nil:
		w.complaint = ""
	case err.Error() != w.complaint:
		w.complaint = err.Error()
		w.service.o.Logger.Error("the Envoy configuration was refused; the last one stays in force", "path", w.path, "error", err, "not_found", errors.Is(err, os.ErrNotExist))
	}
}

// use puts the configuration of files in force. If only the node refuses it, the next poll
// tries again.
func (w *watch) use(files []file) error {
	parse := parseFiles
	if w.service.o.MergeDomains {
		parse = parseMerged
	}
	cfg, err := parse(files)
	if err != nil {
		return err
	}
	if err := w.service.Use(cfg); err != nil {
		w.seen = nil
		return err
	}
	w.service.o.Logger.Info("an Envoy configuration is in force", "path", w.path, "domains", len(cfg.domains), "limits", cfg.count())
	return nil
}
