package dm

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/sched"
)

// Fault says which bios fail. A failed write leaves the device as it was, unless it is torn.
type Fault struct {
	Op blockdev.Op
	// Err is the error; nil is EIO.
	Err error
	// Torn lets the first half of a write reach the device, in sectors of 512 bytes. Together with
	// On it is a power cut in the middle of a write, if flushes fail as well.
	Torn bool
	// Nth counts the bios of Op since the Flakey was made, from 1. 0 is all of them.
	Nth int64
	// On also fails those after the Nth.
	On bool
	// Start and End bound the bios by place: those that touch [Start, End). Both 0 is the whole
	// device; a flush has no place and ignores them.
	Start, End int64
}

func (f *Fault) hits(b *blockdev.Bio, nth int64) bool {
	if f.Op != b.Op || f.Nth != 0 && nth != f.Nth && !(f.On && nth > f.Nth) {
		return false
	}
	return f.End == 0 || b.Op == blockdev.OpFlush || b.Off < f.End && f.Start < b.Off+int64(b.Len())
}

// Flakey fails bios on demand.
type Flakey struct {
	dev    blockdev.Device
	faults atomic.Pointer[[]Fault]
	count  [3]atomic.Int64 // per Op
	failed atomic.Int64
}

// NewFlakey makes a device that works until Set gives it faults.
func NewFlakey(dev blockdev.Device, faults ...Fault) *Flakey {
	f := &Flakey{dev: dev}
	f.Set(faults...)
	return f
}

// Set replaces the faults; with none the device works again. Counting goes on.
func (f *Flakey) Set(faults ...Fault) { f.faults.Store(&faults) }

// Count is the number of bios of op so far.
func (f *Flakey) Count(op blockdev.Op) int64 { return f.count[op].Load() }

// Failed is the number of bios that have failed on demand.
func (f *Flakey) Failed() int64 { return f.failed.Load() }

// Name is the device's below.
func (f *Flakey) Name() string { return f.dev.Name() }

// Under is the device below.
func (f *Flakey) Under() blockdev.Device { return f.dev }

// Size is in bytes.
func (f *Flakey) Size() int64 { return f.dev.Size() }

// Close closes the device below.
func (f *Flakey) Close() error { return f.dev.Close() }

// Discard passes it on to the device below.
func (f *Flakey) Discard(t *sched.Task, off, n int64) error {
	return blockdev.Discard(t, f.dev, off, n)
}

// Submit fails b or passes it on.
func (f *Flakey) Submit(t *sched.Task, b *blockdev.Bio) {
	n := f.count[b.Op].Add(1)
	faults := *f.faults.Load()
	for i := range faults {
		if x := &faults[i]; x.hits(b, n) {
			f.failed.Add(1)
			if x.Torn && n == x.Nth {
				f.half(t, b)
			}
			b.Err = &errno.OpError{Op: b.Op.String(), Path: f.dev.Name(), Off: uint64(b.Off), Len: uint64(b.Len()), Err: cmp.Or[error](x.Err, errno.EIO)}
			b.EndIO(t, b)
			return
		}
	}
	f.dev.Submit(t, b)
}

// half writes the first half of b.
func (f *Flakey) half(t *sched.Task, b *blockdev.Bio) {
	left := b.Len() / 2 / 512 * 512
	off := b.Off
	for _, v := range b.Vecs {
		v = v[:min(len(v), left)]
		if len(v) > 0 {
			_ = blockdev.Write(t, f.dev, v, off) // b fails anyway
		}
		left, off = left-len(v), off+int64(len(v))
	}
}

// ParseFault reads a fault as people write it: eio:write:3 is the third write, eio:write:3+ that
// and all later ones. The operations are read, write and flush. enospc is another error, and
// torn:write:3 lets half of that write reach the device and no later one.
func ParseFault(spec string) (Fault, error) {
	bad := fmt.Errorf("bad fault, have %q want KIND:OP:N or KIND:OP:N+, with KIND eio, enospc or torn, OP read, write or flush and N from 1; torn is of writes, enospc not of reads", spec)
	kind, rest, _ := strings.Cut(spec, ":")
	name, num, ok := strings.Cut(rest, ":")
	var f Fault
	switch kind {
	case "eio":
	case "enospc":
		f.Err = errno.ENOSPC
		ok = ok && name != blockdev.OpRead.String()
	case "torn":
		f.Torn = true
		ok = ok && name == blockdev.OpWrite.String()
	default:
		ok = false
	}
	if !ok {
		return Fault{}, bad
	}
	for _, f.Op = range []blockdev.Op{blockdev.OpRead, blockdev.OpWrite, blockdev.OpFlush} {
		if f.Op.String() == name {
			num, f.On = strings.CutSuffix(num, "+")
			f.On = f.On || f.Torn
			n, err := strconv.ParseInt(num, 10, 64)
			if f.Nth = n; err != nil || n < 1 {
				return Fault{}, bad
			}
			return f, nil
		}
	}
	return Fault{}, bad
}
