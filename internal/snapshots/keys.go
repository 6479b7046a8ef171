package snapshots

import (
	"bytes"
	"crypto/cipher"

	"github.com/weir-go/weir/internal/sealed"
)

// Keys contains the keys with which files are sealed and opened. The zero value equals
// NewKeys without secrets.
type Keys struct {
	masters [][]byte
}

// publicMaster is the key of open files. This key provides no secrecy, but makes damage
// detectable, as in sealed files.
var publicMaster = sealed.Derive([]byte("weir: no secret was configured"), nil, masterLabel)

const (
	masterLabel = "weir snapshot"
	fileLabel   = "weir snapshot file"
	idLabel     = "weir snapshot key id"
)

// NewKeys returns the keys of the secrets that all nodes of a cluster share. The first
// key seals, and each key opens. Empty secrets are ignored. Without secrets, files are
// open: anyone can read and write them, and only Keys without secrets open them.
func NewKeys(secrets [][]byte) (k Keys) {
	for _, secret := range secrets {
		if len(secret) > 0 {
			k.masters = append(k.masters, sealed.Derive(secret, nil, masterLabel))
		}
	}
	return k
}

// sealingKey returns the key that seals, and reports whether that key is secret.
func (k Keys) sealingKey() (master []byte, secret bool) {
	if len(k.masters) == 0 {
		return publicMaster, false
	}
	return k.masters[0], true
}

// find returns the key under which a file was sealed.
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

// keyID returns the identifier by which a reader finds the key of a file. Each file has its own
// identifier.
func keyID(master, salt []byte) []byte { return sealed.Derive(master, salt, idLabel)[:idBytes] }

// cipherOf returns the cipher of a file. The salt is unique to the file, so counters
// are safe as nonces.
func cipherOf(master, salt []byte) cipher.AEAD {
	return sealed.Cipher(sealed.Derive(master, salt, fileLabel))
}
