package secrettext

import (
	"io/fs"
	"log/slog"
	"os"
	"runtime"
)

// ReadableByOthers reports whether the mode of a regular file lets every user read it. On
// Windows a mode does not tell.
func ReadableByOthers(info fs.FileInfo) bool {
	return runtime.GOOS != "windows" && info.Mode().IsRegular() && info.Mode().Perm()&0o004 != 0
}

// WarnOfReaders logs a warning for each file of secrets that every user of the machine can
// read. It skips empty names, files that it cannot inspect, and files in memory. Container
// platforms mount secrets in memory, with file modes that they choose.
func WarnOfReaders(log *slog.Logger, files ...string) {
	for _, name := range files {
		if info, err := os.Stat(name); name == "" || err != nil || !ReadableByOthers(info) || inMemory(name) {
			continue
		}
		log.Warn("every user of this machine can read a file of secrets; run chmod 600", "path", name)
	}
}
