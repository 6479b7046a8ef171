//go:build !unix

package main

import "errors"

func breakConnections(...int) (int, error) { return 0, errors.ErrUnsupported }
