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
	seen      []file // files of the last attempt; nil if the next poll must try again
	complaint string // the error that was logged last; empty after a success
}

// poll reads the files, and puts them in force if they have changed. It does not parse
// unchanged files, so that an idle node does little work.
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
		w.service.o.Logger.Error("the Envoy configuration was refused; the previous configuration stays in force", "path", w.path, "error", err, "not_found", errors.Is(err, os.ErrNotExist))
	}
}

// use puts the configuration of files in force. If the files are valid and the node refuses
// their limits, the next poll tries again.
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
