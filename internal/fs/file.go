package fs

import (
	"btrlab/internal/sched"
)

// File is an open regular file. Its methods may be called by many tasks at once.
type File struct {
}

// Ino is the inode number.
func (f *File) Ino() uint64 { panic("fs: not there yet") }

// Size is i_size in bytes.
func (f *File) Size() int64 { panic("fs: not there yet") }

// ReadAt fills p from off on. It returns io.EOF when the file ends before p does, as io.ReaderAt.
func (f *File) ReadAt(t *sched.Task, p []byte, off int64) (int, error) { panic("fs: not there yet") }

// WriteAt writes p at off by the policy in force; a short count comes with the error that stopped it.
func (f *File) WriteAt(t *sched.Task, p []byte, off int64) (int, error) { panic("fs: not there yet") }

// Truncate sets the size in bytes.
func (f *File) Truncate(t *sched.Task, size int64) error { panic("fs: not there yet") }

// Fallocate reserves, punches or zeroes [off, off+n) as mode (FALLOC_FL_...) says.
func (f *File) Fallocate(t *sched.Task, mode uint32, off, n int64) error { panic("fs: not there yet") }

// Fsync makes the file durable: it writes its data back and commits.
func (f *File) Fsync(t *sched.Task) error { panic("fs: not there yet") }

// Stat gives the attributes.
func (f *File) Stat(t *sched.Task) Attr { panic("fs: not there yet") }

// Flags are the inode flags.
func (f *File) Flags() uint64 { panic("fs: not there yet") }

// SetFlags is FS.SetFlags of the open file.
func (f *File) SetFlags(t *sched.Task, flags uint64) error { panic("fs: not there yet") }

// Close lets the file go; a file without a name is deleted then.
func (f *File) Close(t *sched.Task) error { panic("fs: not there yet") }
