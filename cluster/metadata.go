package cluster

import (
	"errors"
	"fmt"

	"github.com/hashicorp/memberlist"

	"github.com/weir-go/weir/cluster/detect"
)

// membershipVersion is the version of metadata and of roster messages.
const membershipVersion = 1

// metadata is what gossip says about each member beside its address.
type metadata struct {
	Version uint8  `codec:"v"`
	Addr    string `codec:"a"`
	Region  string `codec:"r"`
	Seed    []byte `codec:"s"`
	Born    int64  `codec:"b"`
	Epoch   uint64 `codec:"e"`
	Turn    uint64 `codec:"n"`
	State   State  `codec:"t"`
}

func (m metadata) record(name string) detect.Record {
	return detect.Record{
		Name: name, Addr: m.Addr, Region: m.Region, Born: m.Born,
		Epoch: m.Epoch, Turn: m.Turn, Announced: m.State,
	}
}

var errMetadata = errors.New("its metadata cannot be read")

func decodeMetadata(name string, b []byte) (metadata, error) {
	var m metadata
	if len(b) > memberlist.MetaMaxSize {
		return m, errMetadata
	}
	if err := decode(b, &m); err != nil {
		return m, fmt.Errorf("%w: %w", errMetadata, err)
	}
	switch {
	case m.Version != membershipVersion:
		return m, fmt.Errorf("its metadata has version %d, this member's %d", m.Version, membershipVersion)
	case len(m.Seed) != 16 || !m.record(name).IsValid():
		return m, errMetadata
	}
	return m, nil
}
