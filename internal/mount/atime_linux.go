package mount

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"btrlab/internal/fs"
	"btrlab/internal/sched"
)

// Access times. Linux leaves them to a FUSE server: it sets none, and after each request that reads
// it asks for the access time again when a program wants it (fuse_invalidate_atime()). So each
// request that reads ends here. Differences to a btrfs that Linux mounts: what the kernel has in
// its cache is read without a request, and a mapping counts when its pages are read, not when it is
// made.

// accessed sets the access time of n after a read by a file that is open with the flags, if the
// mount is one that does so now.
//
// Models file_accessed().
func (s *server) accessed(t *sched.Task, n *fs.Node, flags uint32) {
	// The kernel reads the rest of a page for a writer that cannot read.
	toWrite := flags&unix.O_ACCMODE == unix.O_WRONLY
	switch {
	case flags&unix.O_NOATIME != 0, toWrite:
		return
	case s.opt.NoDirAtime && n.IsDir(), !n.NeedsAtime(t, s.opt.Atime), s.flags.keepAtime(n.IsDir()):
		return
	}
	n.SetAccessed(t)
}

// kernelFlags are the flags of the kernel's mount, which a remount changes without a word to the
// server.
type kernelFlags struct {
	mu sync.Mutex
	// file is mountinfo of this process, 0 before watch. An os.File would be of no use: Go's poller
	// would take the news.
	file int
	dev  string // of the mount, as mountinfo has it

	read                     bool
	readOnly, noAtime, noDir bool
}

// watch begins to look at the mount at dir. Without it a mount is as it was made.
func (f *kernelFlags) watch(dir string) error {
	major, minor, err := Device(dir)
	if err != nil {
		return err
	}
	f.dev = fmt.Sprintf("%d:%d", major, minor)
	f.file, err = unix.Open("/proc/self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		f.file = 0
	}
	return err
}

func (f *kernelFlags) close() error {
	if f.file == 0 {
		return nil
	}
	return unix.Close(f.file)
}

// keepAtime reports whether the mount has become one that changes no access times, or none of
// directories. It costs a poll(2), which tells of changes, unless there was one.
func (f *kernelFlags) keepAtime(dir bool) bool {
	if f.file == 0 {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(f.file), Events: unix.POLLPRI}}, 0)
	if n > 0 || err != nil || !f.read {
		f.read = true
		text, err := os.ReadFile("/proc/self/mountinfo")
		if err == nil {
			f.parse(text)
		}
	}
	return f.keeps(dir)
}

func (f *kernelFlags) keeps(dir bool) bool { return f.readOnly || f.noAtime || dir && f.noDir }

// parse takes the flags from mountinfo (proc(5)): the options of the mount, and after " - " those
// of the file system. The first line of the device is the mount that was made.
func (f *kernelFlags) parse(mountinfo []byte) {
	for line := range bytes.Lines(mountinfo) {
		of, super, _ := strings.Cut(string(line), " - ")
		words, supers := strings.Fields(of), strings.Fields(super)
		if len(words) < 6 || len(supers) < 3 || words[2] != f.dev {
			continue
		}
		has := func(name string) bool { return slices.Contains(strings.Split(words[5], ","), name) }
		f.readOnly = has("ro") || slices.Contains(strings.Split(supers[2], ","), "ro")
		f.noAtime, f.noDir = has("noatime"), has("nodiratime")
		return
	}
}
