package admin

import (
	"net/http"

	"github.com/weir-go/weir/rules"
)

// PublishedText is a text of rules that an operator has published to all nodes.
type PublishedText struct {
	Version uint64 `json:"version"`
	Hash    string `json:"hash"`
	controlAnswer

	Error    string   `json:"error,omitempty"`    // the reason why the text is not in force
	Warnings []string `json:"warnings,omitempty"` // warnings about the text that was just published
}

func showText(t *rules.PublishedText) *PublishedText {
	if t == nil {
		return nil
	}
	a := &PublishedText{Version: t.Version, Hash: t.Hash, controlAnswer: showControl(&t.Control)}
	if t.Err != nil {
		a.Error = t.Err.Error()
	}
	return a
}

// putRules publishes a text of rules to all nodes.
func (a *api) putRules(r *request) (int, any, error) {
	var (
		text string
		c    rules.Control
	)
	if err := r.body(append(r.controlFields(&c)[1:], field{name: "text", into: &text, required: true})...); err != nil { // rules have no end
		return 0, nil, err
	}
	set, err := rules.Parse("text", []byte(text))
	if err != nil {
		return 0, nil, refuse(http.StatusBadRequest, "%v", err)
	}
	if now := r.rules.Version(); set.Version() <= now {
		return 0, nil, refuse(http.StatusConflict, "version is %d: raise it above %d, which is in force", set.Version(), now)
	}
	published, err := a.book.Publish(set, c)
	if err != nil {
		return 0, nil, err
	}
	answer := showText(&published)
	for _, w := range set.Warnings() {
		answer.Warnings = append(answer.Warnings, w.Error())
	}
	a.log.Info("an operator published rules", controlAttributes(&c, r, "version", answer.Version, "hash", answer.Hash)...)
	return http.StatusOK, answer, nil
}
