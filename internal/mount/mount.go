package mount

import (
	"errors"

	"btrlab/internal/fs"
)

// Options say how to mount.
type Options struct {
	Dir         string   // the mount point, an empty directory
	Source      string   // what /proc/mounts shows as the device
	ReadOnly    bool     // as the file system was opened
	KernelCache bool     // the kernel caches file data and writes it back later
	AllowOther  bool     // users other than the one who mounts may use the mount
	NoSUID      bool     // ignore setuid and setgid bits
	NoDev       bool     // ignore device files
	NoExec      bool     // run no programs
	NonEmpty    bool     // the directory may have files, which the mount hides
	Ring        Ring     // how requests come
	Atime       fs.Atime // which reads change access times
	NoDirAtime  bool     // none of directories
	Past        bool     // large writes in place go past btrlab's page cache, too

	// Debug, if set, is told each request and its answer, a line each.
	Debug func(line string)
	// Warn, if set, is told errors that have no number for a system call: of a damaged image. Many
	// requests call it at once.
	Warn func(err error)
}

// ErrBusy is an unmount while files of the mount are in use.
var ErrBusy = errors.New("is in use")

// Ring says whether requests come through io_uring.
type Ring int

// RingAuto is where the kernel offers it, RingNo never; RingYes is RingAuto that warns where it
// does not.
const (
	RingAuto Ring = iota
	RingNo
	RingYes
)
