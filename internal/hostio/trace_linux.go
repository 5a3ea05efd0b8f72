//go:build !portable

package hostio

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// tracefs is where the kernel's tracepoints are: mounted already, or for us, at a place that
// nothing else looks at.
type tracefs struct {
	dir  string
	made bool
}

func openTracefs() (*tracefs, error) {
	for _, dir := range []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"} {
		if _, err := os.Stat(filepath.Join(dir, "events")); err == nil {
			return &tracefs{dir: dir}, nil
		}
	}
	dir, err := os.MkdirTemp("", "tracefs")
	if err != nil {
		return nil, err
	}
	if err := unix.Mount("none", dir, "tracefs", 0, ""); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: mount tracefs: %w", ErrTracing, err), os.Remove(dir))
	}
	return &tracefs{dir, true}, nil
}

func (f *tracefs) close() error {
	if !f.made {
		return nil
	}
	return errors.Join(unix.Unmount(f.dir, 0), os.Remove(f.dir))
}

// event is a tracepoint by its format file.
type event struct {
	name   string
	id     uint64
	fields map[string]TraceField
}

// event reads events/SYSTEM/NAME/format.
func (f *tracefs) event(name string) (*event, error) {
	system, short, _ := strings.Cut(name, ":")
	in, err := os.Open(filepath.Join(f.dir, "events", system, short, "format"))
	if err != nil {
		return nil, err
	}
	defer in.Close()
	e := &event{name: name, fields: map[string]TraceField{}}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if id, ok := strings.CutPrefix(line, "ID: "); ok {
			if e.id, err = strconv.ParseUint(id, 10, 64); err != nil {
				return nil, fmt.Errorf("format of %s: %w", name, err)
			}
		}
		if field, tf, ok := parseField(line); ok {
			e.fields[field] = tf
		}
	}
	return e, lines.Err()
}

// parseField reads a line like "field:u8 fsid[16]; offset:8; size:16; signed:0;".
func parseField(line string) (name string, f TraceField, ok bool) {
	decl, rest, found := strings.Cut(line, ";")
	decl, ok = strings.CutPrefix(decl, "field:")
	if !ok || !found {
		return "", f, false
	}
	words := strings.Fields(decl)
	name, _, _ = strings.Cut(words[len(words)-1], "[")
	f.Dynamic = strings.HasPrefix(decl, "__data_loc")
	for _, part := range strings.Split(rest, ";") {
		key, value, _ := strings.Cut(strings.TrimSpace(part), ":")
		n, err := strconv.Atoi(value)
		switch {
		case err != nil:
		case key == "offset":
			f.Offset = n
		case key == "size":
			f.Size = n
		case key == "signed":
			f.Signed = n != 0
		}
	}
	return name, f, true
}

// add makes the event of a probe. One that an earlier process left goes first.
func (f *tracefs) add(p *Probe) error {
	_ = f.remove(p)
	return f.write("f:" + strings.Replace(p.Name, ":", "/", 1) + " " + p.Func + " " + p.Args)
}

func (f *tracefs) remove(p *Probe) error { return f.write("-:" + strings.Replace(p.Name, ":", "/", 1)) }

func (f *tracefs) write(line string) error {
	out, err := os.OpenFile(filepath.Join(f.dir, "dynamic_events"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = out.WriteString(line + "\n")
	if at := (*os.PathError)(nil); errors.As(err, &at) {
		err = at.Err // the path says nothing, and may be a temporary one
	}
	return errors.Join(err, out.Close())
}

// Tracer reads tracepoints of the running kernel, on all CPUs.
type Tracer struct {
	fs     *tracefs
	probes []Probe           // that were added
	opened map[string][]int  // by name: its file descriptors
	events map[uint64]*event // by id
	fds    []int
	rings  []*traceRing
	// Missing are the tracepoints that this kernel does not have, and Refused why it gave no event
	// at the entry of a function: nil if it gave all.
	Missing []string
	Refused error
}

// traceRing is the buffer that the kernel fills for one CPU.
type traceRing struct {
	fd   int // of the first event, into whose buffer those of the others go
	mem  []byte
	page *unix.PerfEventMmapPage
}

const tracePages = 8192 // of a buffer; a power of two

// mapRing maps the buffer of an event of a CPU.
func mapRing(fd, cpu int) (*traceRing, error) {
	mem, err := unix.Mmap(fd, 0, (1+tracePages)*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the buffer of CPU %d: %w", cpu, err)
	}
	return &traceRing{fd, mem, (*unix.PerfEventMmapPage)(unsafe.Pointer(unsafe.SliceData(mem)))}, nil
}

// NewTracer opens the tracepoints, each named "system:event", and those of the probes that the
// kernel lets it have, and reports nothing until Start. The process needs CAP_PERFMON, or root. An
// error is ErrTracing where the kernel refuses.
func NewTracer(names []string, probes ...Probe) (_ *Tracer, err error) {
	x := &Tracer{events: map[uint64]*event{}, opened: map[string][]int{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, x.Close())
		}
	}()
	if x.fs, err = openTracefs(); err != nil {
		return nil, err
	}
	names = slices.Clone(names)
	for i := range probes {
		if err := x.fs.add(&probes[i]); err != nil {
			x.Refused = fmt.Errorf("event at the entry of %s: %w", probes[i].Func, err)
			break
		}
		x.probes = append(x.probes, probes[i])
	}
	if x.Refused == nil {
		for i := range probes {
			names = append(names, probes[i].Name)
		}
	}
	list := make([]*event, 0, len(names))
	for _, name := range names {
		e, err := x.fs.event(name)
		if errors.Is(err, os.ErrNotExist) {
			x.Missing = append(x.Missing, name)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrTracing, err)
		}
		x.events[e.id] = e
		list = append(list, e)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w: none of %d is there, is the module loaded?", ErrTracing, len(names))
	}
	for cpu := range runtime.NumCPU() {
		if err := x.openCPU(cpu, list); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrTracing, err)
		}
	}
	return x, nil
}

// openCPU opens the events for one CPU; all report into the first one's buffer.
func (x *Tracer) openCPU(cpu int, list []*event) error {
	var first *traceRing
	for _, e := range list {
		attr := unix.PerfEventAttr{
			Type: unix.PERF_TYPE_TRACEPOINT, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})), Config: e.id, Sample: 1,
			Sample_type: unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_TIME | unix.PERF_SAMPLE_RAW,
			Bits:        unix.PerfBitDisabled | unix.PerfBitUseClockID, Clockid: unix.CLOCK_MONOTONIC,
		}
		fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if err != nil {
			return fmt.Errorf("perf_event_open %s: %w", e.name, err)
		}
		x.fds = append(x.fds, fd)
		x.opened[e.name] = append(x.opened[e.name], fd)
		if first != nil {
			if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_OUTPUT, first.fd); err != nil {
				return fmt.Errorf("share the buffer of CPU %d: %w", cpu, err)
			}
			continue
		}
		if first, err = mapRing(fd, cpu); err != nil {
			return err
		}
		x.rings = append(x.rings, first)
	}
	return nil
}

// Filter lets the kernel report only those events of a tracepoint that the expression, in the
// kernel's words ("sdev == 37"), is true of.
func (x *Tracer) Filter(name, expression string) error {
	b := append([]byte(expression), 0)
	for _, fd := range x.opened[name] {
		if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.PERF_EVENT_IOC_SET_FILTER, uintptr(unsafe.Pointer(unsafe.SliceData(b)))); e != 0 {
			return fmt.Errorf("%w: filter of %s: %w", ErrTracing, name, e)
		}
	}
	return nil
}

// Start lets the events be reported, and forgets those before.
func (x *Tracer) Start() error {
	if _, err := x.drain(); err != nil {
		return err
	}
	return x.each(unix.PERF_EVENT_IOC_ENABLE)
}

// Stop ends the reports and returns those since Start, by time. It fails if the kernel dropped one.
func (x *Tracer) Stop() ([]TraceRecord, error) {
	if err := x.each(unix.PERF_EVENT_IOC_DISABLE); err != nil {
		return nil, err
	}
	return x.drain()
}

func (x *Tracer) each(request uint) error {
	for _, fd := range x.fds {
		if err := unix.IoctlSetInt(fd, request, 0); err != nil {
			return fmt.Errorf("%w: %w", ErrTracing, err)
		}
	}
	return nil
}

func (x *Tracer) drain() ([]TraceRecord, error) {
	var list []TraceRecord
	for _, r := range x.rings {
		err := r.drain(func(b []byte) {
			if rec, ok := x.sample(b); ok {
				list = append(list, rec)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	sort.SliceStable(list, func(i, j int) bool { return list[i].Time < list[j].Time })
	return list, nil
}

// drain calls each with every sample in the buffer, which is the caller's.
func (r *traceRing) drain(each func(sample []byte)) error {
	data := r.mem[os.Getpagesize():]
	head := atomic.LoadUint64(&r.page.Data_head)
	for tail := r.page.Data_tail; tail < head; {
		at := func(n int) []byte { // n bytes from tail on, which may go round the end
			from := int(tail % uint64(len(data)))
			if from+n <= len(data) {
				return data[from : from+n]
			}
			return slices.Concat(data[from:], data[:n-(len(data)-from)])
		}
		h := at(8)
		kind, size := binary.LittleEndian.Uint32(h), int(binary.LittleEndian.Uint16(h[6:]))
		switch kind {
		case unix.PERF_RECORD_LOST:
			return fmt.Errorf("%w: its buffer of %d bytes was full", ErrDropped, len(data))
		case unix.PERF_RECORD_SAMPLE:
			each(slices.Clone(at(size)[8:]))
		}
		tail += uint64(size)
	}
	atomic.StoreUint64(&r.page.Data_tail, head)
	return nil
}

// sample reads pid u32, tid u32, time u64, size u32, raw.
func (x *Tracer) sample(b []byte) (r TraceRecord, ok bool) {
	r.TID = int(binary.LittleEndian.Uint32(b[4:]))
	r.Time = binary.LittleEndian.Uint64(b[8:])
	n := int(binary.LittleEndian.Uint32(b[16:]))
	r.raw = b[20 : 20+n]
	e := x.events[uint64(binary.LittleEndian.Uint16(r.raw))]
	if e == nil {
		return r, false
	}
	const hardirq, softirq = 0x08, 0x10 // TRACE_FLAG_HARDIRQ, TRACE_FLAG_SOFTIRQ
	r.Name, r.fields = e.name, e.fields
	r.Interrupt = r.Int("common_flags")&(hardirq|softirq) != 0
	return r, true
}

// Close gives everything back.
func (x *Tracer) Close() error {
	var errs []error
	for _, r := range x.rings {
		errs = append(errs, unix.Munmap(r.mem))
	}
	for _, fd := range x.fds {
		errs = append(errs, unix.Close(fd))
	}
	x.rings, x.fds = nil, nil
	if x.fs != nil {
		for i := range x.probes {
			errs = append(errs, x.fs.remove(&x.probes[i]))
		}
		x.probes = nil
		errs = append(errs, x.fs.close())
		x.fs = nil
	}
	return errors.Join(errs...)
}

// KernelOffsets are the places of members in the running kernel's structures, in bytes, by
// "structure.member"; those that the kernel proper does not have are not in the map.
func KernelOffsets(members ...string) (map[string]int64, error) {
	b, err := os.ReadFile("/sys/kernel/btf/vmlinux")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBTF, err)
	}
	return parseOffsets(b, members)
}

// Release is the kernel's version, as uname -r has it.
func Release() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// KernelEnums are the constants of the running kernel's enumerations, and of those of module, that
// keep wants.
func KernelEnums(module string, keep func(name string) bool) (map[string]int64, error) {
	base, err := os.ReadFile("/sys/kernel/btf/vmlinux")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBTF, err)
	}
	all, err := parseEnums(base, nil, keep)
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(filepath.Join("/sys/kernel/btf", module))
	if errors.Is(err, os.ErrNotExist) {
		return all, nil // it is built in
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBTF, err)
	}
	more, err := parseEnums(b, base, keep)
	maps.Copy(all, more)
	return all, err
}
