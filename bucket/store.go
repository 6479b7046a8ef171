package bucket

// ID names one count: the keyed 128-bit hash of a limit's name and a key.
type ID struct{ Hi, Lo uint64 }
