package stats

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
	"sync"

	"github.com/weir-go/weir/internal/wire"
)

const (
	// MaxBans is the maximum number of bans that a node lists.
	MaxBans = 1000
	// banBytes is the maximum size of the bans in the answer of a member.
	banBytes = 48 << 10
)

// Ban is a ban of a key. Its times are in nanoseconds since 1970.
type Ban struct {
	Limit  string
	ID     [16]byte
	Key    string // the text of the key, masked if the key is a secret
	Known  bool   // a node has included the text of the key
	Masked bool   // Key is masked; set by Survey
	Since  int64  // 0 if none of the nodes that list the ban has begun it
	Until  int64
}

// BanList lists the bans that callers of this node began or met, at most MaxBans of them. The zero BanList lists
// none. Methods are safe for concurrent use.
type BanList struct {
	mu  sync.Mutex
	all map[[16]byte]Ban
}

// Add lists a ban, unless b has no Since and the list already has a ban of the key that has not ended. If secret
// is true, Add stores only the masked text of the key. A full list drops the ban that ends first, which may be b.
func (l *BanList) Add(b Ban, secret bool, now int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	old, listed := l.all[b.ID]
	if listed && b.Since == 0 && old.Until > now {
		return
	}
	if secret {
		b.Key = mask + tail(b.Key)
	}
	b.Limit, b.Key, b.Known = strings.Clone(b.Limit), strings.Clone(b.Key), true
	if l.all == nil {
		l.all = make(map[[16]byte]Ban)
	}
	if !listed && len(l.all) == MaxBans {
		first := b
		for _, o := range l.all {
			if o.Until < first.Until {
				first = o
			}
		}
		delete(l.all, first.ID)
		if first.ID == b.ID {
			return
		}
	}
	l.all[b.ID] = b
}

// Forget removes the ban of an ID that was reset.
func (l *BanList) Forget(id [16]byte) {
	l.mu.Lock()
	delete(l.all, id)
	l.mu.Unlock()
}

// List returns the bans that have not ended, and forgets the bans that have.
func (l *BanList) List(now int64) (all []Ban) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, b := range l.all {
		if b.Until <= now {
			delete(l.all, id)
		} else {
			all = append(all, b)
		}
	}
	sortBans(all)
	return all
}

// sortBans sorts bans, the last to end first.
func sortBans(all []Ban) {
	slices.SortFunc(all, func(a, b Ban) int {
		return cmp.Or(cmp.Compare(b.Until, a.Until), slices.Compare(a.ID[:], b.ID[:]))
	})
}

// AppendBans appends the answer of a member to a request for its bans, with as many bans as there is room
// for. Numbers are unsigned varints, times in nanoseconds. The length of a key is increased by one; 0 means
// that the answer does not include the text. Later releases may append fields.
//
//	answer  number of bans | bans
//	ban     id 16 | since | until | length of limit | limit | length of key | key
func AppendBans(b []byte, all []Ban, withKeys bool) []byte {
	var bans []byte
	n := 0
	for _, ban := range all {
		one := append([]byte(nil), ban.ID[:]...)
		one = binary.AppendUvarint(one, uint64(max(0, ban.Since)))
		one = binary.AppendUvarint(one, uint64(max(0, ban.Until)))
		one = wire.AppendText(one, ban.Limit)
		if withKeys && ban.Known {
			one = append(binary.AppendUvarint(one, uint64(len(ban.Key))+1), ban.Key...)
		} else {
			one = binary.AppendUvarint(one, 0)
		}
		if len(bans)+len(one) > banBytes {
			break
		}
		bans = append(bans, one...)
		n++
	}
	return append(binary.AppendUvarint(b, uint64(n)), bans...)
}

// ParseBans parses the answer of a member. The error is wire.ErrMalformed.
func ParseBans(answer []byte) (all []Ban, err error) {
	const maxTime = 1 << 62
	c := wire.NewCursor(answer)
	for range c.Number(MaxBans) {
		var b Ban
		copy(b.ID[:], c.Bytes(len(b.ID)))
		b.Since, b.Until = int64(c.Number(maxTime)), int64(c.Number(maxTime))
		b.Limit = c.Text(wire.MaxNameBytes)
		if size := c.Number(wire.MaxKeyBytes + 1); size > 0 {
			b.Key, b.Known = string(c.Bytes(int(size-1))), true
		}
		all = append(all, b)
	}
	if c.Err() != nil {
		return nil, c.Err()
	}
	return all, nil
}

// mergeBans returns each ban in the lists of members once.
func mergeBans(lists [][]Ban) (all []Ban) {
	byID := make(map[[16]byte]Ban)
	for _, list := range lists {
		for _, b := range list {
			if o, listed := byID[b.ID]; listed {
				b.Since, b.Until = max(b.Since, o.Since), max(b.Until, o.Until)
				if !b.Known {
					b.Key, b.Known = o.Key, o.Known
				}
			}
			byID[b.ID] = b
		}
	}
	for _, b := range byID {
		all = append(all, b)
	}
	sortBans(all)
	return all
}
