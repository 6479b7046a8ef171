package env

// Signal sends a signal on c, which must have a capacity of one. If c already contains a signal,
// Signal does nothing: the receiver handles both with the same signal.
func Signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Unsignal removes the signal that c contains, if any.
func Unsignal(c <-chan struct{}) {
	select {
	case <-c:
	default:
	}
}
