package main

import "bytes"

// readTokens reads a file with one token per line. All tokens are accepted, so that they
// can be rotated.
func readTokens(name string) (tokens [][]byte, err error) {
	text, err := readFile(name)
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(text) {
		if token := bytes.TrimSpace(line); len(token) > 0 {
			tokens = append(tokens, token)
		}
	}
	return tokens, nil
}
