package identity

import (
	"io/fs"
	"log/slog"
	"os"
	"runtime"
)

// ReadableByOthers reports whether the mode of a regular file allows every user to read
// the file. On Windows it returns false, because there a mode does not show who can read
// a file.
func ReadableByOthers(info fs.FileInfo) bool {
	return runtime.GOOS != "windows" && info.Mode().IsRegular() && info.Mode().Perm()&0o004 != 0
}

// WarnOfReaders logs a warning for each file of secrets that every user of the machine can read.
// Empty names and files that cannot be inspected are ignored. Files in memory are ignored as
// well: container platforms mount secrets in memory, with modes of their choice.
func WarnOfReaders(log *slog.Logger, files ...string) {
	for _, name := range files {
		if info, err := os.Stat(name); name == "" || err != nil || !ReadableByOthers(info) || inMemory(name) {
			continue
		}
		log.Warn("every user of this machine can read a file of secrets; run chmod 600", "path", name)
	}
}
