//go:build !unix

package main

import "errors"

// signals says that this system has those that the steps need.
const signals = false

func (p *process) leave() error  { return errors.ErrUnsupported }
func (p *process) freeze() error { return errors.ErrUnsupported }
func (p *process) thaw() error   { return errors.ErrUnsupported }
