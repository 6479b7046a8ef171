package s3snapshot

// SetPartBytes sets the size of the parts that Save sends.
func (b *Bucket) SetPartBytes(n int) { b.partBytes = n }
