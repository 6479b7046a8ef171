package main

import (
	"fmt"
	"io"
	"os"
)

// maxFile bounds the bytes of a file. It is larger than any file that a person writes.
const maxFile = 16 << 20

// readFile reads a regular file of at most maxFile bytes. A FIFO or a terminal could make the
// start wait forever.
func readFile(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("gateway: %s is not a regular file: name a regular file", name)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("gateway: %s has more than %d bytes: give the name of another file", name, maxFile)
	}
	return text, err
}
