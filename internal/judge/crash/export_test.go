package crash

import "btrlab/internal/sched"

// Lie is an Fsync that does nothing and says that it did.
func (f *File) Lie(t *sched.Task) error {
	return f.note(t, &f.h.syncs, noted{}, func() error { return nil })
}
