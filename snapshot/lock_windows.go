package snapshot

import (
	"os"
	"syscall"
)

// errLocked is the error of lockFile for a file that is locked: ERROR_SHARING_VIOLATION.
var errLocked = error(syscall.Errno(32))

// lockFile opens a file without sharing: the file cannot be opened again until it is closed, or
// the process has ended.
func lockFile(path string) (*os.File, error) {
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	handle, err := syscall.CreateFile(name, syscall.GENERIC_READ|syscall.GENERIC_WRITE, 0, nil, syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(handle), path), nil
}
