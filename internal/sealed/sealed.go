// Package sealed encrypts short records as texts that clients carry between the nodes of a
// cluster, and can neither read nor change.
//
// A text is base64url of
//
//	version 1 | salt 16 | AES-256-GCM of the record, and its tag
//
// Each text has its own key, which is derived from the key of the Box and the salt. Therefore no
// nonce is used twice with the same key, regardless of the number of sealed texts.
package sealed

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strings"
)

const (
	version   = 1
	saltBytes = 16
	keyBytes  = 32
	tagBytes  = 16
	// MaxBytes is the maximum length of a record. Open refuses the text of a longer record before any
	// computation, and Seal does not check the length.
	MaxBytes = 512
)

var encoding = base64.RawURLEncoding.Strict()

// ErrForeign is the error for a text that was sealed with other secrets than those of the Box, or with
// a different kind or ad, or was changed. The error does not distinguish these cases.
var ErrForeign = errors.New("weir: the text is not sealed by this cluster for this use")

// Box seals and opens texts. Its methods are safe for concurrent use.
type Box struct {
	keys [][]byte // the first key seals, all keys open
}

// New returns a Box with secrets that all nodes of a cluster share. The first secret seals, and all
// secrets open, so that secrets can be rotated. Empty secrets are ignored. Without secrets the key is
// random, and only this Box can open its texts.
func New(secrets [][]byte) *Box {
	b := new(Box)
	for _, secret := range secrets {
		if len(secret) > 0 {
			b.keys = append(b.keys, derive(secret))
		}
	}
	if b.keys == nil {
		secret := make([]byte, keyBytes)
		_, _ = rand.Read(secret) // never fails
		b.keys = [][]byte{derive(secret)}
	}
	return b
}

func derive(secret []byte) []byte { return Derive(secret, nil, "weir sealed text") }

// Derive returns a key of 32 bytes, by HKDF-SHA256. The label separates the key from other keys of
// the same secret. A salt makes keys of the same secret and label differ; it may be nil.
func Derive(secret, salt []byte, label string) []byte {
	key, err := hkdf.Key(sha256.New, secret, salt, label, keyBytes)
	if err != nil {
		panic(err) // hkdf refuses only lengths above 255 hashes
	}
	return key
}

// Seal returns the record plain, of at most MaxBytes bytes, as a text. Open needs the same kind and ad, which the
// text does not contain. The argument ad is data to which the text is bound, such as the ID of a count.
func (b *Box) Seal(kind byte, ad, plain []byte) string {
	text := make([]byte, 1+saltBytes, 1+saltBytes+len(plain)+tagBytes)
	text[0] = version
	_, _ = rand.Read(text[1:]) // never fails
	return encoding.EncodeToString(cipherOf(b.keys[0], kind, text).Seal(text, nonce[:], plain, ad))
}

// Open returns the record that was passed to Seal. The error is ErrForeign.
func (b *Box) Open(kind byte, ad []byte, text string) ([]byte, error) {
	if len(text) > encoding.EncodedLen(1+saltBytes+MaxBytes+tagBytes) || strings.ContainsAny(text, "\r\n") { // DecodeString ignores line breaks
		return nil, ErrForeign
	}
	bytes, err := encoding.DecodeString(text)
	if err != nil || len(bytes) < 1+saltBytes+tagBytes || bytes[0] != version {
		return nil, ErrForeign
	}
	for _, key := range b.keys {
		if plain, err := cipherOf(key, kind, bytes).Open(nil, nonce[:], bytes[1+saltBytes:], ad); err == nil {
			return plain, nil
		}
	}
	return nil, ErrForeign
}

// nonce is the nonce of all texts. The key of each text encrypts a single message.
var nonce [12]byte

// cipherOf returns the cipher for the text that begins with this version and salt.
func cipherOf(key []byte, kind byte, text []byte) cipher.AEAD {
	h := hmac.New(sha256.New, key)
	h.Write(append([]byte{kind}, text[:1+saltBytes]...))
	return Cipher(h.Sum(nil))
}

// Cipher returns AES-256-GCM of a key of 32 bytes.
func Cipher(key []byte) cipher.AEAD {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // aes refuses only keys of other lengths
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // GCM refuses only ciphers with blocks of other lengths
	}
	return aead
}
