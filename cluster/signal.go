package cluster

// signal wakes the goroutine that waits for c, a channel of one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// unsignal takes a signal back that has not been taken yet.
func unsignal(c chan struct{}) {
	select {
	case <-c:
	default:
	}
}
