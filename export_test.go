package weir

// ForgetPushback has this node ask for the key at its owner again, as it would if no
// denial were remembered.
func (l *Limiter) ForgetPushback(key string) {
	l.node.pushbacks.end(l.id(key), 0)
}
