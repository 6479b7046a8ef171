package snapshot

import (
	"fmt"
	"io/fs"
	"os"
)

// Open opens a snapshot in a directory. If the file is not a regular file, Open returns an
// error that names the type of the file. Open does not follow a symbolic link, and does not
// wait for the writer of a pipe.
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
	if info, err = file.Stat(); err == nil { // the file may have been replaced
		err = regular(path, info)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// regular returns an error with the type of a file that is not a regular file.
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
