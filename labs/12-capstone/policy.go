// Package capstone is lab 12: a locking policy for files. See README.md.
package capstone

import "btrlab/labs/kit"

// Policy is the locking policy of one file. The grader makes one for every file; its fields are
// shared by the tasks that use the file, so each is a kit.Mutex, a kit.Cond, a kit.Var or a struct
// of these. A policy that needs none but the locks of the file has no fields.
type Policy struct{}

// New makes the policy of a file.
func New() *Policy { return &Policy{} }

// Write carries out a buffered write: Begin, then Batch until it says that no bytes are left, and
// Balance now and then. Under which locks?
func (p *Policy) Write(t *kit.Task, w *kit.WriteOp) {
}

// Read carries out a buffered read: Copy.
func (p *Policy) Read(t *kit.Task, r *kit.ReadOp) {
}

// Truncate sets the size of the file: SetSize, then DropExtents if SetSize says so.
func (p *Policy) Truncate(t *kit.Task, x *kit.TruncateOp) {
}

// Fallocate allocates, punches or zeroes a range: Change.
func (p *Policy) Fallocate(t *kit.Task, x *kit.FallocateOp) {
}

// Fsync makes the file durable: Flush, then Commit.
func (p *Policy) Fsync(t *kit.Task, x *kit.FsyncOp) {
}
