package cluster

// signal wakes the goroutine that waits for c, a channel of one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
