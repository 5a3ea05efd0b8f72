//go:build !linux || portable

package conform

import (
	"errors"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
)

func newFSID() format.UUID { return format.UUID{1} }

type tracedKernel struct{}

func openKernel(string) (*tracedKernel, error) {
	return nil, errors.New("conform needs Linux: it compares the engine with the running kernel")
}

// Close does nothing.
func (*tracedKernel) Close() error { return nil }

// Missing is empty.
func (*tracedKernel) Missing() []string { return nil }

// Refused is nil.
func (*tracedKernel) Refused() error { return nil }

// Release is empty.
func (*tracedKernel) Release() string { return "" }

func (*tracedKernel) run(*blockdev.Memory, *Op) ([]Event, error) { return nil, errors.ErrUnsupported }

func (*tracedKernel) runPair(*blockdev.Memory, *Pair, int) ([]Event, error) {
	return nil, errors.ErrUnsupported
}
