package pgrules

import "time"

// SetTimeout sets the connect_timeout, which has whole seconds in a URL.
func (s *Source) SetTimeout(d time.Duration) { s.config.ConnectTimeout = d }
