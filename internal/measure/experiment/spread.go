package experiment

import (
	"errors"

	"btrlab/internal/measure/fio"
	"btrlab/internal/sched"
)

// Spread is the file of a Session with Parts: parts of size bytes each, as one after the other.
// What fills them and reads them back sees one file.
func Spread(parts []fio.Target, size int64) fio.Target { return &spread{parts, size} }

// spread is it.
type spread struct {
	parts []fio.Target
	size  int64 // of each
}

// each calls do for the parts of [off, off+n), with what of them it is.
func (s *spread) each(off, n int64, do func(f fio.Target, off, from, to int64) error) error {
	for from := int64(0); from < n; {
		k, at := (off+from)/s.size, (off+from)%s.size
		if k >= int64(len(s.parts)) {
			return nil
		}
		to := min(n, from+s.size-at)
		if err := do(s.parts[k], at, from, to); err != nil {
			return err
		}
		from = to
	}
	return nil
}

func (s *spread) ReadAt(t *sched.Task, p []byte, off int64) (n int, err error) {
	err = s.each(off, int64(len(p)), func(f fio.Target, off, from, to int64) error {
		m, err := f.ReadAt(t, p[from:to], off)
		n += m
		return err
	})
	return n, err
}

func (s *spread) WriteAt(t *sched.Task, p []byte, off int64) (n int, err error) {
	err = s.each(off, int64(len(p)), func(f fio.Target, off, from, to int64) error {
		m, err := f.WriteAt(t, p[from:to], off)
		n += m
		return err
	})
	return n, err
}

func (s *spread) Fallocate(t *sched.Task, mode uint32, off, n int64) error {
	return s.each(off, n, func(f fio.Target, off, from, to int64) error { return f.Fallocate(t, mode, off, to-from) })
}

// Truncate is for nobody: the parts keep their size.
func (s *spread) Truncate(*sched.Task, int64) error { return errors.ErrUnsupported }

func (s *spread) Fsync(t *sched.Task) (err error) {
	for _, f := range s.parts {
		err = errors.Join(err, f.Fsync(t))
	}
	return err
}

func (s *spread) Size(*sched.Task) int64 { return s.size * int64(len(s.parts)) }
