package worker

import (
	"errors"
	"io"
	"time"

	"github.com/weir-go/weir/internal/lab"
)

// RoleVariable names the role of a process that the command, or a test of it, has started.
const RoleVariable = "WEIR_BENCH_ROLE"

// StartWait bounds how long a process may take to be ready, and to end. A busy machine
// needs many times as long as an idle machine.
const StartWait = time.Minute

// ServeCalls serves the methods of service until the parent closes the standard input of this
// process, and then closes service.
func ServeCalls(name string, service io.Closer) error {
	return errors.Join(lab.ServeCalls(name, service), service.Close())
}
