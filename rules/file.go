package rules

import (
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/weir-go/weir/internal/strictyaml"
)

// readFile reads a regular file. It returns at most strictyaml.MaxBytes + 1 + more bytes: Parse refuses a text
// that is longer than strictyaml.MaxBytes, and more is the length of other data in the file. Opening a FIFO waits
// for a writer, so that Close would wait too, and opening a device may have any effect. So both are refused by
// their mode before they are opened. Because a FIFO or a device may replace the file between this check and the
// opening, the file is opened without waiting, and its mode is checked again.
func readFile(path string, more int64) ([]byte, error) {
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
	return io.ReadAll(io.LimitReader(f, strictyaml.MaxBytes+1+more))
}

// regular returns an error with the kind of the file if it is not a regular file.
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
