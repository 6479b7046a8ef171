//go:build !race

package weirtest_test

const randomScheduler = false
