package snapshots

import (
	"bytes"
	"crypto/cipher"

	"github.com/weir-go/weir/internal/sealed"
)

// Keys are what files are sealed and opened with. The zero value is that of NewKeys
// without secrets.
type Keys struct {
	masters [][]byte
}

// publicMaster is the key of open files. It hides nothing: it lets damage of an open file be
// found as that of a sealed one.
var publicMaster = sealed.Derive([]byte("weir: no secret was configured"), nil, masterLabel)

const (
	masterLabel = "weir snapshot"
	fileLabel   = "weir snapshot file"
	idLabel     = "weir snapshot key id"
)

// NewKeys returns the keys of the secrets that all nodes of a cluster share: the first one
// seals, and each opens. Empty secrets are left out. Without any, files are open: anybody
// can read and write them, and they open with these Keys alone.
func NewKeys(secrets [][]byte) (k Keys) {
	for _, secret := range secrets {
		if len(secret) > 0 {
			k.masters = append(k.masters, sealed.Derive(secret, nil, masterLabel))
		}
	}
	return k
}

// first is the key that seals, and reports whether that is a secret one.
func (k Keys) first() (master []byte, secret bool) {
	if len(k.masters) == 0 {
		return publicMaster, false
	}
	return k.masters[0], true
}

// find returns the key that a file was sealed under.
func (k Keys) find(salt, id []byte) (master []byte, err error) {
	if len(k.masters) == 0 {
		return nil, ErrNoSecret
	}
	for _, master := range k.masters {
		if bytes.Equal(keyID(master, salt), id) {
			return master, nil
		}
	}
	return nil, ErrOtherSecret
}

// keyID shows a reader which of its keys a file is sealed under. It differs for each file.
func keyID(master, salt []byte) []byte { return sealed.Derive(master, salt, idLabel)[:idBytes] }

// cipherOf is the cipher of one file. No other file has its salt, so its nonces are
// counters.
func cipherOf(master, salt []byte) cipher.AEAD {
	return sealed.Cipher(sealed.Derive(master, salt, fileLabel))
}
