package rules

import (
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/weir-go/weir/internal/strictyaml"
)

// readFile reads no more of a regular file than Parse takes, and one byte to tell that
// it is more. A call that opens a FIFO waits for a writer, and Close with it; a device
// may do anything. So both are refused by name, without being opened; and as another file
// may be there by then, what is opened is opened so that nothing waits, and looked at
// again.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil {
		err = regular(path, info)
	}
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|openWithoutWaiting, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err == nil {
		err = regular(path, info)
	}
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, strictyaml.MaxBytes+1))
}

// regular says what a file is that is none to read rules from.
func regular(path string, info fs.FileInfo) error {
	kind := "a special file"
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		kind = "a directory"
	case mode&fs.ModeNamedPipe != 0:
		kind = "a FIFO"
	case mode&fs.ModeDevice != 0:
		kind = "a device"
	case mode&fs.ModeSocket != 0:
		kind = "a socket"
	}
	return fmt.Errorf("rules: %s is %s: rules are read from a regular file, or a link to one", path, kind)
}
