package publish

// Save calls write with messages that contain all entries, for Load to read. If the store has
// changed, Save sorts it first.
func (p *Publisher) Save(write func(message []byte) error) error {
	var q Question
	for {
		d := p.findDifference(&q, maxMessageBytes)
		if len(d.list) == 0 {
			return nil
		}
		if err := write(appendEntries(nil, d.list, p.cfg.Env.Now())); err != nil || !d.more {
			return err
		}
		q.after = d.list[len(d.list)-1].Name
	}
}

// Load merges a message that Save has written, like a message of a member. The error is
// wire.ErrMalformed.
func (p *Publisher) Load(message []byte) error { return p.Serve(message, "of a snapshot") }
