package rules

import (
	"bytes"
	"cmp"
	"errors"
	"io/fs"
)

// load puts a text of the source in force, or returns the reason why it cannot. If the text equals that of
// the last call, load only restores the LastError of that call, and returns nil. If the text equals the last
// text of the source that was put in force, load only clears LastError.
func (b *Book) load(text Text) error {
	hash := hashOf(text.Bytes)
	b.mu.Lock()
	seen, accepted := hash == b.seen, hash == b.accepted
	if seen {
		b.stats.Missing, b.stats.LastError = false, b.seenErr
	}
	b.mu.Unlock()
	switch {
	case seen:
		return nil
	case accepted:
		b.noteText(hash, nil)
		return nil
	}
	set, err := Parse(text.Name, text.Bytes)
	if err == nil {
		err = b.enforce(set)
	}
	b.noteText(hash, err)
	if err == nil {
		b.writeCache(b.cache, cacheHeader{}, text.Bytes)
	}
	return err
}

// noteText records the hash of a text of the source, and the error of loading it.
func (b *Book) noteText(hash string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen, b.seenErr = hash, err
	b.stats.Missing, b.stats.LastError = false, err
	switch {
	case err == nil:
		b.accepted = hash
	case b.current.Load() != nil:
		b.stats.Refused++
		b.logRefusal(err)
	}
}

// noteUnread records that the source cannot be read now. It logs err unless LastError has the same text.
func (b *Book) noteUnread(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stats.LastError == nil || b.stats.LastError.Error() != err.Error() {
		b.logRefusal(err)
	}
	b.stats.LastError, b.stats.Missing = err, errors.Is(err, fs.ErrNotExist)
}

// logRefusal logs that the source has no text that can be in force. The caller must hold mu.
func (b *Book) logRefusal(err error) {
	b.log.Error("the rules were refused: the last good version stays in force", "source", b.stats.Source, "error", err, "hash", b.stats.Hash)
}

// enforce puts a Set in force.
func (b *Book) enforce(set *Set) error { return b.enforceText(set, nil) }

// enforceText puts a Set in force. published describes the text of a Set that an operator has published, and
// is nil for a text of the source. A published text takes precedence over a text of the source with the same
// version.
func (b *Book) enforceText(set *Set, published *PublishedText) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.current.Load()
	if old != nil {
		if err := set.follows(old.Set); err != nil {
			return err
		}
		if published == nil && b.stats.Published != nil && set.version == old.version {
			if bytes.Equal(set.text, old.text) {
				return nil
			}
			return errorAt(set.versionAt, "version is %d, and a published text with this version is in force: raise it", set.version)
		}
	}
	s, err := newSnapshot(b.node, set)
	if err != nil {
		return err
	}
	s.now, s.blocked = b.now, &b.blocked
	before := cmp.Or(old, new(Snapshot))
	s.serial, s.switches, s.adapted = before.serial, before.switches, before.adapted
	s.denials, s.warnings, s.meters = set.newTierDenials(before.denials), set.newWarnings(before.warnings), set.newMeters(before.meters)
	b.swap(*s, b.now())
	b.stats.Hash, b.stats.LoadedAt = hashOf(set.text), b.now()
	b.stats.Loads++
	b.stats.Published = published
	if b.source != nil || old != nil {
		source := b.stats.Source
		if published != nil {
			source = "published by " + published.By
		}
		b.log.Info("rules are in force", "source", source, "version", set.version, "hash", b.stats.Hash, "rules", len(set.rules), "limits", len(set.limits))
	}
	return nil
}

// follows returns an error if s must not replace old. Counts continue under the new rules, and a
// count in use is judged by the numbers of the highest version that was used for it. So a lower
// version would apply only to keys whose counts are not in use. A limit with a new algorithm needs
// a higher version, because counts in use would keep the old algorithm.
func (s *Set) follows(old *Set) error {
	if s.version < old.version {
		return errorAt(s.versionAt,
			"version is %d, below %d, which is in force: counts in use would keep the numbers of version %d; to go back to an older text, give it a version above %d",
			s.version, old.version, old.version, old.version)
	}
	var errs []error
	for _, l := range s.limits {
		was := old.names[l.Name]
		if was != nil && was.base.Algorithm != l.base.Algorithm && s.version == old.version {
			errs = append(errs, errorAt(l.place, "limit %q was a %s and is a %s, at version %d: a new algorithm needs a version above %d",
				l.Name, was.base.Algorithm, l.base.Algorithm, s.version, old.version))
		}
	}
	return errors.Join(errs...)
}

func hashOf(text []byte) string { return fullHashOf(text)[:12] }
