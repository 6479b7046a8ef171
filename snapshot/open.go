package snapshot

import (
	"fmt"
	"io/fs"
	"os"
)

// Open opens a snapshot in a directory. The error says so if it is no regular file: Open follows
// no symbolic link, and waits for no writer of a pipe.
func Open(path string) (*os.File, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if err := regular(path, info); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return nil, err
	}
	if info, err = file.Stat(); err == nil { // it may have been replaced meanwhile
		err = regular(path, info)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// regular returns an error that names the type of what is no regular file.
func regular(path string, info fs.FileInfo) error {
	kind := "special file"
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return nil
	case mode&fs.ModeSymlink != 0:
		kind = "symbolic link"
	case mode.IsDir():
		kind = "directory"
	case mode&fs.ModeNamedPipe != 0:
		kind = "named pipe"
	case mode&fs.ModeSocket != 0:
		kind = "socket"
	}
	return fmt.Errorf("%s is a %s: remove it, as a snapshot is a regular file", path, kind)
}
