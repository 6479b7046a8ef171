package env

// Env is the clocks of a node and the lifetime of what it runs.
type Env struct {
	Clock
	Life
}
