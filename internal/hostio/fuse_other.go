//go:build !linux || portable

package hostio

// FuseEntry takes requests of a FUSE mount, which needs Linux.
type FuseEntry struct{}

// NewFuseEntry fails.
func NewFuseEntry(int) (*FuseEntry, error) { return nil, ErrNotLinux }

// Register does nothing.
func (*FuseEntry) Register(int, int) {}

// Fetch fails.
func (*FuseEntry) Fetch() (header, op, payload []byte, err error) { return nil, nil, nil, ErrNotLinux }

// Answer is nil.
func (*FuseEntry) Answer() (header, payload []byte) { return nil, nil }

// Commit does nothing.
func (*FuseEntry) Commit(int) {}

// Close fails.
func (*FuseEntry) Close() error { return ErrNotLinux }

// OnCPU does nothing.
func OnCPU(int) {}

// FuseRings fails.
func FuseRings() (int, error) { return 0, ErrNotLinux }

// FuseFD fails.
func FuseFD(uint32) (int, error) { return -1, ErrNotLinux }
