//go:build !amd64 && !arm64

package bucket

// Prefetch does nothing on this architecture: see prefetch.go.
func (s *Store) Prefetch([]ID) {}
