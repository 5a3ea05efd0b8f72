package hostio

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// ErrTracing means that this machine does not let the process read the kernel's tracepoints.
var ErrTracing = errors.New("the kernel's tracepoints cannot be read")

// ErrDropped means that the kernel had more events than its buffer holds: other programs make some.
var ErrDropped = errors.New("the kernel dropped events")

// Probe asks for an event at the entry of a kernel function, beside the tracepoints that the kernel
// has. Only some kernels offer it (CONFIG_FPROBE_EVENTS), and only if it is not locked down.
type Probe struct {
	Name string // of the event, as that of a tracepoint: "btrlab:inode_lock"
	Func string // "down_write"
	Args string // what is kept, in the kernel's words: "ino=inode->i_ino"; see its fprobetrace.rst
}

// TraceField is one field of a tracepoint, as its format file has it.
type TraceField struct {
	Offset, Size int // bytes
	Signed       bool
	Dynamic      bool // __data_loc: 16 bits of offset, 16 of length, of a string elsewhere
}

// TraceRecord is one event that the kernel reported.
type TraceRecord struct {
	Name string // "btrfs:btrfs_cow_block"
	Time uint64 // nanoseconds of CLOCK_MONOTONIC
	TID  int    // the thread that the CPU ran
	// Interrupt says that an interrupt reported it, which borrowed the thread.
	Interrupt bool

	raw    []byte
	fields map[string]TraceField
}

// Has says whether the event has the field.
func (r *TraceRecord) Has(field string) bool { _, ok := r.fields[field]; return ok }

// Bytes is the field as the kernel stored it; nil when there is none of the name.
func (r *TraceRecord) Bytes(field string) []byte {
	f, ok := r.fields[field]
	if !ok || f.Offset+f.Size > len(r.raw) {
		return nil
	}
	b := r.raw[f.Offset : f.Offset+f.Size]
	if !f.Dynamic {
		return b
	}
	at := int(binary.LittleEndian.Uint16(b))
	n := int(binary.LittleEndian.Uint16(b[2:]))
	if at+n > len(r.raw) {
		return nil
	}
	return r.raw[at : at+n]
}

// String is a field that is text, up to its NUL.
func (r *TraceRecord) String(field string) string {
	b, _, _ := bytes.Cut(r.Bytes(field), []byte{0})
	return string(b)
}

// Int is a field of 1, 2, 4 or 8 bytes; an unsigned one of 8 bytes is what its bits are.
// A field that is missing is 0.
func (r *TraceRecord) Int(field string) int64 {
	b, signed := r.Bytes(field), r.fields[field].Signed
	var u uint64
	for i := len(b) - 1; i >= 0 && len(b) <= 8; i-- {
		u = u<<8 | uint64(b[i])
	}
	if n := len(b); signed && n > 0 && n < 8 && u>>(8*n-1) != 0 {
		u |= ^uint64(0) << (8 * n)
	}
	return int64(u)
}
