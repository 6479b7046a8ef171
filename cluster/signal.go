package cluster

// signal wakes the goroutine that waits for c, which must have a buffer of one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// unsignal removes a signal that no goroutine has received yet.
func unsignal(c chan struct{}) {
	select {
	case <-c:
	default:
	}
}
