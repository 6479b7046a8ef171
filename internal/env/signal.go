package env

// Signal wakes what waits for c, which has room for one. A signal that nothing has taken
// yet stands for both.
func Signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Unsignal takes back a signal that nothing has taken.
func Unsignal(c <-chan struct{}) {
	select {
	case <-c:
	default:
	}
}
