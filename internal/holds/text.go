package holds

import (
	"encoding/binary"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/identity"
	"github.com/weir-go/weir/internal/sealed"
	"github.com/weir-go/weir/internal/wire"
)

// The text of a client's hold, before it is sealed: origin 8 | number 8. It is bound to the ID of
// the count.
const (
	textKind  = 'h'
	textBytes = 16
)

// Client is the name of a client's hold, which never changes. The sealed text that the client
// carries contains Origin and Number, and is bound to ID. The zero Client names no hold.
type Client struct {
	ID             bucket.ID
	Origin, Number uint64 // hash of the name of the node that first asked for the hold, and the number of the hold on that node
}

// ClientOf returns the name of the hold in an ask.
func ClientOf(a *wire.Ask) Client { return Client{a.ID, a.Hold.Holder, a.Hold.Number} }

// Text returns the sealed text of a hold, empty for the zero Client.
func (h *Holds) Text(c Client) string {
	if c.Number == 0 {
		return ""
	}
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, textBytes), c.Origin)
	id := identity.Bytes(c.ID)
	return h.cfg.Box.Seal(textKind, id[:], binary.LittleEndian.AppendUint64(b, c.Number))
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
	return Client{ID: id, Origin: binary.LittleEndian.Uint64(b), Number: binary.LittleEndian.Uint64(b[8:])}, nil
}
