package rules

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir"
)

// PublishedText describes a text of rules that an operator has published to all nodes.
type PublishedText struct {
	Control        // Until is zero
	Version uint64 // version of the rules
	Hash    string // first 12 hexadecimal digits of the SHA-256 of the text
	Err     error  // the reason why the text is not in force; nil if it is
}

const (
	maxTexts    = 64          // maximum number of refused texts in a call of adoptHighest
	orphanAfter = time.Minute // minimum age of chunks that are deleted because they have no head
)

// errWithdrawn is the reason that Publish gives if another node has deleted the head of the text before the
// text was in force on this node.
var errWithdrawn = errors.New("another node has withdrawn the text")

// textState is the state of a Book about published texts. The holder of mu may lock Book.mu.
type textState struct {
	mu      sync.Mutex // serializes adopt and Publish
	inForce textHead   // head of the last published text in force
	refused map[attempt]error
}

// attempt is the key of a refused text. The text is not parsed again until one of these fields has
// changed.
type attempt struct {
	textHead
	chunks  uint64 // sum of the versions of the chunks
	current uint64 // version of the rules in force
}

func (h *textHead) describe(err error) *PublishedText {
	return &PublishedText{h.Control, h.version, h.Hash[:12], err}
}

// adopt puts the published text with the highest version in force, unless the rules in force have a
// higher version. If a text cannot be put in force, adopt tries the text with the next lower
// version.
func (b *Book) adopt() {
	b.texts.mu.Lock()
	defer b.texts.mu.Unlock()
	b.adoptHighest()
}

// adoptHighest is like adopt, but the caller must hold b.texts.mu. It returns the refused text with the highest
// version, or nil.
func (b *Book) adoptHighest() (highest *PublishedText) {
	values, _ := b.values.Published(headPrefix)
	before, refused := b.texts.inForce, make(map[attempt]error)
	for _, v := range slices.Backward(values) {
		h, err := readTextHead(v)
		if err != nil {
			b.logUnread(v.Name, err)
			continue
		}
		if h.version < b.Current().version || h == before || len(refused) == maxTexts {
			break
		}
		if err = b.tryText(&h, refused); err == nil {
			b.texts.inForce = h
			break
		}
		highest = cmp.Or(highest, h.describe(err))
	}
	b.texts.refused = refused
	b.mu.Lock()
	b.stats.RefusedText = highest
	b.mu.Unlock()
	if b.texts.inForce != before {
		b.withdrawTexts(before.ID)
	}
	return highest
}

// tryText puts a published text in force, or adds it to refused unless chunks are missing. The caller must hold
// b.texts.mu.
func (b *Book) tryText(h *textHead, refused map[attempt]error) error {
	chunks, _ := b.values.Published(h.prefix())
	now := attempt{textHead: *h, current: b.Current().version}
	for _, c := range chunks {
		now.chunks += c.Version
	}
	if err, known := b.texts.refused[now]; known {
		refused[now] = err
		return err
	}
	set, err := h.parse(chunks)
	if err == nil {
		err = b.enforceText(set, h.describe(nil))
	}
	switch err {
	case nil:
		b.writeCache(b.cache+publishedSuffix, cacheHeader{Control: h.Control, Version: h.version, Values: h.published}, set.text)
	case errIncomplete:
	default:
		refused[now] = err
		b.mu.Lock()
		defer b.mu.Unlock()
		b.stats.Refused++
		if unlogged, due := b.unadopted.Due(time.Now()); due {
			b.log.Error("a published text of rules was refused: the last good version stays in force",
				"version", h.version, "by", h.By, "error", err, "hash", b.stats.Hash, "unlogged", unlogged)
		}
	}
	return err
}

// Publish publishes the text of a Set to all nodes, and puts it in force on this node at once. Other
// nodes put it in force when it arrives there, unless their source has a higher version. The version must
// be above the version of the rules in force. Publish sets At of c. During a split, each side uses its own text.
// After the split, the text with the highest version wins. Of several texts with this version, the text
// that was published last wins.
//
// The error is weir.ErrInvalid for a nil Set, an invalid Control or version, a text of more than 512 KiB after
// compression, or rules that this node cannot put in force, or if the published values are full. It can also be an
// error of weir.Node.Publish. After an error, the text was not published, or was withdrawn again.
func (b *Book) Publish(set *Set, c Control) (p PublishedText, err error) {
	if err := checkSet("Book.Publish", set); err != nil {
		return p, err
	}
	if err := c.prepare("text", b.now()); err != nil {
		return p, err
	}
	b.texts.mu.Lock()
	defer b.texts.mu.Unlock()
	switch now := b.Current().version; {
	case !c.Until.IsZero():
		return p, fmt.Errorf("%w text: Until is %s: rules have no end, leave it out", weir.ErrInvalid, c.untilText())
	case set.version <= now:
		return p, fmt.Errorf("%w text: its version is %d: raise it above %d, which is in force", weir.ErrInvalid, set.version, now)
	}
	h, chunks, err := newTextHead(set.text)
	if err != nil {
		return p, err
	}
	h.Control, h.version, h.published = c, set.version, b.nextVersion()
	if err := b.publishText(&h, chunks); err != nil {
		return p, err
	}
	if refused := b.adoptHighest(); b.Current().version < h.version {
		b.withdrawValues(headName(h.version), nil)
		b.withdrawValues(h.prefix(), nil)
		refused = cmp.Or(refused, h.describe(errWithdrawn))
		for tried, err := range b.texts.refused {
			if tried.textHead == h {
				refused = h.describe(err)
			}
		}
		return p, fmt.Errorf("%w text: version %d is not in force, because the published version %d was refused: %w", weir.ErrInvalid, h.version, refused.Version, refused.Err)
	}
	return *h.describe(nil), nil
}

// nextVersion returns a version for the published values of a text, above the versions of all values of texts.
func (b *Book) nextVersion() uint64 {
	next := uint64(b.now().UnixNano())
	known, _ := b.values.Published("rules/")
	for _, v := range known {
		next = max(next, v.Version+1)
	}
	return next
}

// publishText publishes the chunks of a text, and then its head. After an error, it withdraws the chunks.
// The caller must hold b.texts.mu, unless the Book has not been started.
func (b *Book) publishText(h *textHead, chunks [][]byte) (err error) {
	for i, chunk := range chunks {
		if err = b.values.Publish(h.chunkName(i), h.published, chunk); err != nil {
			break
		}
	}
	if err == nil {
		value, _ := json.Marshal(h) // never fails for numbers and texts
		err = b.values.Publish(headName(h.version), h.published, value)
	}
	if err != nil {
		b.withdrawValues(h.prefix(), nil)
	}
	return err
}

// republish puts published texts in force. If this node then knows no published text of the version in the cache,
// and no higher version is in force, republish publishes the text of the cache again, because all nodes may have
// been restarted. All nodes that have the text publish it with the same versions.
func (b *Book) republish() {
	if b.cache == "" {
		return
	}
	cached, text, err := b.readCache(b.cache + publishedSuffix)
	b.adopt() // a text of another node may have replaced that of the cache
	if err == nil && cached.Values > 0 && cached.Version >= b.Current().version {
		if _, known := b.published(headName(cached.Version)); !known {
			h, chunks, _ := newTextHead(text) // there is no error for a text that was published before
			h.Control, h.version, h.published = cached.Control, cached.Version, cached.Values
			err = b.publishText(&h, chunks)
			b.adopt()
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.log.Error("cannot publish the cached rules again", "path", b.cache+publishedSuffix, "error", err)
	}
}

// withdrawValues deletes the published values with a prefix, except those whose names are in keep. All nodes
// publish the same deletions.
func (b *Book) withdrawValues(prefix string, keep map[string]bool) {
	values, _ := b.values.Published(prefix)
	for _, v := range values {
		if !keep[v.Name] {
			_ = b.values.Publish(v.Name, v.Version+1, nil)
		}
	}
}

// withdrawTexts deletes the texts that the text in force has replaced, and old chunks without a head. The
// argument replaced is the ID of the text that was in force before. Each node calls withdrawTexts, because the
// publisher of the old text may be gone. The caller must hold b.texts.mu.
func (b *Book) withdrawTexts(replaced string) {
	inForce := &b.texts.inForce
	heads, _ := b.values.Published(headPrefix)
	ids, past := map[string]bool{inForce.ID: true}, map[string]bool{replaced: true}
	for _, v := range heads {
		h, err := readTextHead(v)
		switch {
		case err == nil && h.version < inForce.version:
			past[h.ID] = true
			_ = b.values.Publish(v.Name, v.Version+1, nil)
		case err == nil:
			ids[h.ID] = true
		}
	}
	chunks, _ := b.values.Published(chunkPrefix)
	for _, v := range chunks {
		id, _, _ := strings.Cut(strings.TrimPrefix(v.Name, chunkPrefix), "/")
		if !ids[id] && (past[id] || v.Version+uint64(orphanAfter) < inForce.published) {
			_ = b.values.Publish(v.Name, v.Version+1, nil)
		}
	}
}
