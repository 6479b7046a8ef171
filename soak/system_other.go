//go:build !unix

package main

import "errors"

// faultsArePlayed reports whether this system has what the faults need.
const faultsArePlayed = false

var errNoSignals = errors.New("soak: this system has no such signal")

func (p *process) leave() error  { return errNoSignals }
func (p *process) freeze() error { return errNoSignals }
func (p *process) thaw() error   { return errNoSignals }

func breakConnections() (int, error) { return 0, errNoSignals }
