package cluster

// Speaks is what a node speaks in tests that are outside of this package: what this
// release does if it is zero.
type Speaks struct {
	Oldest, Newest uint8
}

// NewGossipThatSpeaks is NewGossip for a node of another release.
func NewGossipThatSpeaks(s Speaks, cfg Config) Cluster {
	g := NewGossip(cfg).(*gossipCluster)
	if s.Newest > 0 {
		g.speaks = versions{oldest: s.Oldest, newest: s.Newest}
	}
	return g
}
