package main

import (
	"bytes"
	"fmt"

	"github.com/weir-go/weir"
)

// readShared reads the secrets and the seed that all replicas share. The seed is in the
// file of the secrets, or in a separate file. Without files there are no secrets and no
// seed.
func (o *options) readShared() (err error) {
	if o.secrets != "" {
		if o.node.Secrets, o.node.Seed, err = weir.ReadSecrets(o.secrets); err != nil {
			return err
		}
		if o.node.Secrets == nil {
			return fmt.Errorf("gateway: %s has no line that begins with \"secret:\": add such a line from the output of `weir secret`", o.secrets)
		}
	}
	if o.seed == "" {
		return nil
	}
	_, seed, err := weir.ReadSecrets(o.seed)
	switch {
	case err != nil:
		return err
	case seed == nil:
		return fmt.Errorf("gateway: %s has no line that begins with \"seed:\": add the line that all replicas share, from the output of `weir secret`", o.seed)
	case o.node.Seed != nil && !bytes.Equal(o.node.Seed, seed):
		return fmt.Errorf("gateway: the seeds in %s and %s differ: remove one of them, or write the same seed in both", o.seed, o.secrets)
	}
	o.node.Seed = seed
	return nil
}
