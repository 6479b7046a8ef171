//go:build !race

package main

const randomScheduler = false
