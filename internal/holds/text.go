package holds

import (
	"encoding/binary"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/identity"
	"github.com/weir-go/weir/internal/sealed"
)

// The text of a client's hold, before it is sealed: holder 8 | number 8. It is bound to the ID of
// the count.
const (
	textKind  = 'h'
	textBytes = 16
)

// Client names the hold of a client, as its sealed text does.
type Client struct {
	ID             bucket.ID
	Holder, Number uint64
}

// Text returns the sealed text of o, empty of one that holds nothing.
func (h *Holds) Text(o *Hold) string {
	if !o.Holds() {
		return ""
	}
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, textBytes), o.holder)
	id := identity.Bytes(o.id)
	return h.cfg.Box.Seal(textKind, id[:], binary.LittleEndian.AppendUint64(b, o.number))
}

// Open opens the text of a hold of a count. The error is sealed.ErrForeign.
func (h *Holds) Open(id bucket.ID, text string) (Client, error) {
	ad := identity.Bytes(id)
	b, err := h.cfg.Box.Open(textKind, ad[:], text)
	if err != nil {
		return Client{}, err
	}
	if len(b) != textBytes {
		return Client{}, sealed.ErrForeign
	}
	return Client{ID: id, Holder: binary.LittleEndian.Uint64(b), Number: binary.LittleEndian.Uint64(b[8:])}, nil
}
