package blockdev

import (
	"btrlab/internal/errno"
	"btrlab/internal/sched"
)

// Discarder is a Device that can give back the place of bytes that nobody needs: they are zeros
// then, or whatever the device makes of them. A layer passes it on.
type Discarder interface {
	// Discard gives back n bytes at off, the whole sectors in them. EOPNOTSUPP when the device
	// cannot.
	Discard(t *sched.Task, off, n int64) error
}

// Discard gives back n bytes of d at off: EOPNOTSUPP when it cannot.
func Discard(t *sched.Task, d Device, off, n int64) error {
	if x, ok := d.(Discarder); ok && n > 0 {
		return x.Discard(t, off, n)
	}
	return errno.EOPNOTSUPP
}

// discardLen is how many bytes of zeros are written at once.
const discardLen = 64 << 10

// WriteZeros makes n bytes of d at off zeros: what Discard is where that is to be seen as a write.
func WriteZeros(t *sched.Task, d Device, off, n int64) error {
	zeros := make([]byte, min(n, discardLen))
	for ; n > 0; off, n = off+int64(len(zeros)), n-int64(len(zeros)) {
		zeros = zeros[:min(n, discardLen)]
		if err := Write(t, d, zeros, off); err != nil {
			return err
		}
	}
	return nil
}

// Discard makes Memory a Discarder.
func (m *Memory) Discard(t *sched.Task, off, n int64) error {
	if err := WriteZeros(t, m, off, n); err != nil {
		return err
	}
	m.Forget(off, n)
	return nil
}
