// Package fs is the file system as one object: it opens an image, wires the doors that lower packages
// declare, and offers files and names.
package fs

import (
	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/iopath/policy"
	"btrlab/internal/sched"
)

// FS is an open image.
type FS struct {
}

// Open reads the trees of the image on dev in the order of kernel-semantics 10.2.
func Open(t *sched.Task, dev blockdev.Device, o Options) (*FS, error) { panic("fs: not there yet") }

// Close writes back everything, commits and stops the tasks; the device stays open. The FS is dead
// afterwards, also when an error is returned.
func (f *FS) Close(t *sched.Task) error { panic("fs: not there yet") }

// Sync writes back all dirty data and commits.
func (f *FS) Sync(t *sched.Task) error { panic("fs: not there yet") }

// SetPolicy changes the locking policy. The caller has no operation in flight.
func (f *FS) SetPolicy(p *policy.Policy) { panic("fs: not there yet") }

// DropCaches drops the clean pages of every file.
func (f *FS) DropCaches(t *sched.Task) { panic("fs: not there yet") }

// Statfs gives the space accounting.
func (f *FS) Statfs(t *sched.Task) Statfs { panic("fs: not there yet") }

// Super is a copy of the superblock as last committed.
func (f *FS) Super() format.Super { panic("fs: not there yet") }

// Lookup gives the inode number of path, following symbolic links.
func (f *FS) Lookup(t *sched.Task, path string) (uint64, error) { panic("fs: not there yet") }

// Stat gives the attributes of path, following symbolic links.
func (f *FS) Stat(t *sched.Task, path string) (Attr, error) { panic("fs: not there yet") }

// Lstat is Stat of the link itself when path is a symbolic link.
func (f *FS) Lstat(t *sched.Task, path string) (Attr, error) { panic("fs: not there yet") }

// OpenFile opens a regular file. Mode counts when the file is created.
func (f *FS) OpenFile(t *sched.Task, path string, flags OpenFlags, mode uint32) (*File, error) {
	panic("fs: not there yet")
}

// Create makes an empty regular file, or empties the one that is there, and opens it for writing.
func (f *FS) Create(t *sched.Task, path string, mode uint32) (*File, error) {
	return f.OpenFile(t, path, O_RDWR|O_CREAT|O_TRUNC, mode)
}

// Mkdir makes an empty directory.
func (f *FS) Mkdir(t *sched.Task, path string, mode uint32) error { panic("fs: not there yet") }

// Unlink takes a name from a file; the last one deletes it once no File has it open.
func (f *FS) Unlink(t *sched.Task, path string) error { panic("fs: not there yet") }

// Rmdir deletes an empty directory.
func (f *FS) Rmdir(t *sched.Task, path string) error { panic("fs: not there yet") }

// Rename moves from to to and replaces what is there, as rename(2).
func (f *FS) Rename(t *sched.Task, from, to string) error { panic("fs: not there yet") }

// Link gives the file old a second name.
func (f *FS) Link(t *sched.Task, old, path string) error { panic("fs: not there yet") }

// Symlink makes path a symbolic link to target.
func (f *FS) Symlink(t *sched.Task, target, path string) error { panic("fs: not there yet") }

// Readlink gives the target of a symbolic link.
func (f *FS) Readlink(t *sched.Task, path string) (string, error) { panic("fs: not there yet") }

// ReadDir lists a directory in the order of its index, without "." and "..".
func (f *FS) ReadDir(t *sched.Task, path string) ([]DirEntry, error) { panic("fs: not there yet") }

// SetFlags replaces the inode flags that chattr(1) may change; a directory passes format.InodeNoDataCow
// on to what is created in it, a file takes it only while it is empty (EINVAL).
func (f *FS) SetFlags(t *sched.Task, path string, flags uint64) error { panic("fs: not there yet") }

// Chmod, Chown and Utimes change attributes.
func (f *FS) Chmod(t *sched.Task, path string, mode uint32) error { panic("fs: not there yet") }
