//go:build !linux || portable

package hostio

// NoWait is RWF_NOWAIT, which this system has not.
const NoWait = 8

// File is a file of the host, which needs Linux.
type File struct{}

// Create fails.
func Create(string) (*File, error) { return nil, ErrNotLinux }

// FD fails.
func (*File) FD(bool) (int, error) { return -1, ErrNotLinux }

// Transfer fails.
func (*File) Transfer(Op, bool, []byte, int64, uint32) (int, error) { return 0, ErrNotLinux }

// Truncate fails.
func (*File) Truncate(int64) error { return ErrNotLinux }

// Fallocate fails.
func (*File) Fallocate(uint32, int64, int64) error { return ErrNotLinux }

// Sync fails.
func (*File) Sync() error { return ErrNotLinux }

// Size is 0.
func (*File) Size() int64 { return 0 }

// DropCache fails.
func (*File) DropCache(int64, int64) error { return ErrNotLinux }

// SetNoCow fails.
func (*File) SetNoCow() error { return ErrNotLinux }

// Close fails.
func (*File) Close() error { return ErrNotLinux }

// FileSystem fails.
func FileSystem(string) (string, error) { return "", ErrNotLinux }

// Ring is a Queue on an io_uring, which needs Linux.
type Ring struct{ Queue }

// NewRing fails.
func NewRing(int) (*Ring, error) { return nil, ErrNotLinux }

// PrepVec fails.
func (*Ring) PrepVec(Op, int, [][]byte, int64, uint32) error { return ErrNotLinux }

// Publish fails.
func (*Ring) Publish() uint32 { return 0 }

// Push fails.
func (*Ring) Push(uint32, int) error { return ErrNotLinux }

// Events fails.
func (*Ring) Events() error { return ErrNotLinux }

// Wait fails.
func (*Ring) Wait() error { return ErrNotLinux }

// AIO is a Queue on libaio's calls, which need Linux.
type AIO struct{ Queue }

// NewAIO fails.
func NewAIO(int) (*AIO, error) { return nil, ErrNotLinux }

// Tracer reads the tracepoints of Linux.
type Tracer struct{ Missing []string }

// NewTracer fails.
func NewTracer([]string, ...Probe) (*Tracer, error) { return nil, ErrTracing }

// Filter is not to be had.
func (*Tracer) Filter(string, string) error { return ErrTracing }

// KernelOffsets is not to be had.
func KernelOffsets(...string) (map[string]int64, error) { return nil, ErrTracing }

// Start fails.
func (*Tracer) Start() error { return ErrTracing }

// Stop fails.
func (*Tracer) Stop() ([]TraceRecord, error) { return nil, ErrTracing }

// Close does nothing.
func (*Tracer) Close() error { return nil }

// Profiler samples the stacks of Linux.
type Profiler struct{ Missing []string }

// NewProfiler fails.
func NewProfiler(int, []string) (*Profiler, error) { return nil, ErrTracing }

// Functions are none.
func (*Profiler) Functions([]string) []string { return nil }

// Start fails.
func (*Profiler) Start() error { return ErrTracing }

// Stop fails.
func (*Profiler) Stop() (*Profile, error) { return nil, ErrTracing }

// Close does nothing.
func (*Profiler) Close() error { return nil }

// Release is empty.
func Release() string { return "" }

// KernelEnums fails.
func KernelEnums(string, func(string) bool) (map[string]int64, error) { return nil, ErrTracing }

// Mount is an image that Linux has mounted.
type Mount struct {
	Dir string
	Dev uint32
}

// MountLoop fails.
func MountLoop(string, string, string, string) (*Mount, error) { return nil, ErrNotLinux }

// Sync fails.
func (*Mount) Sync() error { return ErrNotLinux }

// Close does nothing.
func (*Mount) Close() error { return nil }

// Snapshot fails.
func Snapshot(string, string) error { return ErrNotLinux }
