// Package rlimit reads the limits that the system sets to this process.
package rlimit
