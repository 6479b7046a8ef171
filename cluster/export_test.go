package cluster

// Speaks is the range of versions that a node speaks in tests outside of this package. The zero
// Speaks stands for the versions of this release.
type Speaks struct {
	Oldest, Newest uint8
}

// NewGossipThatSpeaks is like NewGossip, for a node of another release.
func NewGossipThatSpeaks(s Speaks, cfg Config) Cluster {
	g := NewGossip(cfg).(*gossipCluster)
	if s.Newest > 0 {
		g.speaks = versions{oldest: s.Oldest, newest: s.Newest}
	}
	return g
}

const FirstByteGossip = firstByteGossip
