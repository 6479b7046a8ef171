package reserve_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/sealed"
)

var (
	old, next = []byte("a secret of sixteen bytes or more"), []byte("the one that replaces it")
	ad        = []byte("limit and key")
	plain     = []byte("what is sealed")
)

func TestTextOpensWithAnySecretOfTheBox(t *testing.T) {
	text := sealed.New([][]byte{old}).Seal(1, ad, plain)
	for name, secrets := range map[string][][]byte{
		"same secret":             {old},
		"secrets during rotation": {next, old},
		"empty secret first":      {nil, old},
	} {
		got, err := sealed.New(secrets).Open(1, ad, text)
		require.NoError(t, err, name)
		require.Equal(t, plain, got, name)
	}
}

func TestTextOpensOnlyForItsUse(t *testing.T) {
	b := sealed.New([][]byte{old})
	text := b.Seal(1, ad, plain)
	for name, open := range map[string]func() ([]byte, error){
		"another secret":   func() ([]byte, error) { return sealed.New([][]byte{next}).Open(1, ad, text) },
		"no secret":        func() ([]byte, error) { return sealed.New(nil).Open(1, ad, text) },
		"another kind":     func() ([]byte, error) { return b.Open(2, ad, text) },
		"another use":      func() ([]byte, error) { return b.Open(1, []byte("limit and another"), text) },
		"empty":            func() ([]byte, error) { return b.Open(1, ad, "") },
		"lengthened":       func() ([]byte, error) { return b.Open(1, ad, text+"AAAA") },
		"appended newline": func() ([]byte, error) { return b.Open(1, ad, text+"\n") },
		"far too long":     func() ([]byte, error) { return b.Open(1, ad, strings.Repeat("A", 1<<20)) },
	} {
		got, err := open()
		require.ErrorIs(t, err, sealed.ErrForeign, name)
		require.Nil(t, got, name)
	}
	for i := range text {
		_, err := b.Open(1, ad, text[:i])
		require.ErrorIs(t, err, sealed.ErrForeign, "truncated to %d", i)
		other := byte('A')
		if text[i] == other {
			other = 'B'
		}
		_, err = b.Open(1, ad, text[:i]+string(other)+text[i+1:])
		require.ErrorIs(t, err, sealed.ErrForeign, "changed at %d", i)
	}
}

func TestBoxWithoutSecretsOpensItsOwnTexts(t *testing.T) {
	b := sealed.New(nil)
	got, err := b.Open(1, ad, b.Seal(1, ad, plain))
	require.NoError(t, err)
	require.Equal(t, plain, got)
}

// Two texts of one record differ, so that a client cannot compare what they contain.
func TestTextsOfSameRecordDiffer(t *testing.T) {
	b := sealed.New([][]byte{old})
	first, second := b.Seal(1, ad, plain), b.Seal(1, ad, plain)
	require.NotEqual(t, first, second)
	require.NotContains(t, first, string(plain))
}

func TestLongestRecordOpens(t *testing.T) {
	b := sealed.New(nil)
	long := make([]byte, sealed.MaxBytes)
	got, err := b.Open(1, nil, b.Seal(1, nil, long))
	require.NoError(t, err)
	require.Equal(t, long, got)
}

func FuzzOpen(f *testing.F) {
	b := sealed.New([][]byte{old, next})
	// Seal has returned this text once. Each process that fuzzes has the same text.
	const sealed = "Af0GMz7m8nlEn9H7mVahGlb8Wbm5KMjlpCJmUud2XnGuMOGl--YDuRJPX2wNF-Y"
	f.Add(sealed, byte(1))
	f.Add(sealed[:len(sealed)-1], byte(1))
	f.Add(strings.ToLower(sealed), byte(2))
	f.Add("", byte(0))
	f.Fuzz(func(t *testing.T, text string, kind byte) {
		got, err := b.Open(kind, ad, text)
		require.Equal(t, text == sealed && kind == 1, err == nil, "no text is made up, and the sealed one opens")
		if err == nil {
			require.Equal(t, plain, got)
		}
	})
}
