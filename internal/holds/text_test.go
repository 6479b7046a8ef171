package holds

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/sealed"
)

func TestTextOpensOnlyForItsCount(t *testing.T) {
	box := sealed.New([][]byte{[]byte("sixteen bytes...")})
	h, id := New(Config{Cluster: new(member), Most: 1, Box: box}), bucket.ID{Hi: 1, Lo: 2}
	text := h.Text(Client{id, 3, 4})
	c, err := New(Config{Cluster: new(member), Most: 1, Box: box}).Open(id, text)
	require.NoError(t, err)
	require.Equal(t, Client{ID: id, Origin: 3, Number: 4}, c)
	_, err = h.Open(bucket.ID{Hi: 1, Lo: 3}, text)
	require.ErrorIs(t, err, sealed.ErrForeign)
	_, err = h.Open(id, box.Seal(textKind, make([]byte, 16), nil))
	require.ErrorIs(t, err, sealed.ErrForeign)
	require.Empty(t, h.Text(Client{}), "a denied hold has no text")
}
