//go:build !amd64 && !arm64

package bucket

// Prefetch does nothing here: see prefetch.go.
func (s *Store) Prefetch([]ID) {}
