//go:build unix

package main

import "syscall"

// signals says that this system has those that the steps need.
const signals = true

func (p *process) leave() error  { return p.cmd.Process.Signal(syscall.SIGTERM) }
func (p *process) freeze() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }
func (p *process) thaw() error   { return p.cmd.Process.Signal(syscall.SIGCONT) }
