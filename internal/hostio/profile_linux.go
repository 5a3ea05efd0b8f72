//go:build !portable

package hostio

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Profiler samples the kernel's stacks on all CPUs, by their clock, and counts tracepoints.
type Profiler struct {
	hz     uint64
	rings  []*traceRing
	counts []counter
	table  []symbol
	begin  time.Time
	// Missing are the tracepoints that this kernel does not have.
	Missing []string
}

type counter struct {
	name string
	fds  []int // one for each CPU
}

type symbol struct {
	at   uint64
	name string
}

// NewProfiler opens a profiler of hz samples a second and CPU, which counts the tracepoints. It
// needs root. The kernel's buffer holds some 8,000 samples of a CPU.
func NewProfiler(hz int, counted []string) (_ *Profiler, err error) {
	x := &Profiler{hz: uint64(hz)}
	defer func() {
		if err != nil {
			err = errors.Join(err, x.Close())
		}
	}()
	if x.table, err = kallsyms(); err != nil {
		return nil, err
	}
	for cpu := range runtime.NumCPU() {
		attr := unix.PerfEventAttr{
			Type: unix.PERF_TYPE_SOFTWARE, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})), Config: unix.PERF_COUNT_SW_CPU_CLOCK, Sample: x.hz,
			Sample_type: unix.PERF_SAMPLE_CALLCHAIN,
			Bits:        unix.PerfBitDisabled | unix.PerfBitFreq | unix.PerfBitExcludeIdle | unix.PerfBitExcludeCallchainUser,
		}
		fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if err != nil {
			return nil, fmt.Errorf("%w: perf_event_open of CPU %d's clock: %w", ErrTracing, cpu, err)
		}
		r, err := mapRing(fd, cpu)
		if err != nil {
			return nil, errors.Join(err, unix.Close(fd))
		}
		x.rings = append(x.rings, r)
	}
	fs, err := openTracefs()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, fs.close()) }()
	for _, name := range counted {
		e, err := fs.event(name)
		if errors.Is(err, os.ErrNotExist) {
			x.Missing = append(x.Missing, name)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrTracing, err)
		}
		c := counter{name: name}
		for cpu := range runtime.NumCPU() {
			attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_TRACEPOINT, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})), Config: e.id, Bits: unix.PerfBitDisabled}
			fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
			if err != nil {
				return nil, fmt.Errorf("%w: perf_event_open %s: %w", ErrTracing, name, err)
			}
			c.fds = append(c.fds, fd)
		}
		x.counts = append(x.counts, c)
	}
	return x, nil
}

// kallsyms are the kernel's functions by address.
func kallsyms() ([]symbol, error) {
	in, err := os.Open("/proc/kallsyms")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTracing, err)
	}
	defer in.Close()
	var table []symbol
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) < 3 || !strings.ContainsAny(words[1], "tTwW") {
			continue
		}
		if at, err := strconv.ParseUint(words[0], 16, 64); err == nil && at != 0 {
			name, _, _ := strings.Cut(words[2], ".") // what the compiler splits off belongs to it
			table = append(table, symbol{at, name})
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(table) == 0 {
		return nil, fmt.Errorf("%w: /proc/kallsyms has no addresses", ErrTracing)
	}
	slices.SortFunc(table, func(a, b symbol) int { return cmp.Compare(a.at, b.at) })
	return table, nil
}

// name is the function at an address.
func (x *Profiler) name(at uint64) string {
	i := sort.Search(len(x.table), func(i int) bool { return x.table[i].at > at })
	if i == 0 {
		return ""
	}
	return x.table[i-1].name
}

// Functions says which of the names this kernel has as functions of their own.
func (x *Profiler) Functions(names []string) (have []string) {
	for _, s := range x.table {
		if slices.Contains(names, s.name) && !slices.Contains(have, s.name) {
			have = append(have, s.name)
		}
	}
	return have
}

// Start begins, and forgets what was before.
func (x *Profiler) Start() error {
	for _, r := range x.rings {
		if err := r.drain(func([]byte) {}); err != nil {
			return err
		}
	}
	if err := x.each(unix.PERF_EVENT_IOC_RESET); err != nil {
		return err
	}
	x.begin = time.Now()
	return x.each(unix.PERF_EVENT_IOC_ENABLE)
}

func (x *Profiler) each(request uint) error {
	for _, r := range x.rings {
		if err := unix.IoctlSetInt(r.fd, request, 0); err != nil {
			return fmt.Errorf("%w: %w", ErrTracing, err)
		}
	}
	for _, c := range x.counts {
		for _, fd := range c.fds {
			if err := unix.IoctlSetInt(fd, request, 0); err != nil {
				return fmt.Errorf("%w: %w", ErrTracing, err)
			}
		}
	}
	return nil
}

// Stop ends it and returns what was seen. It fails if the kernel dropped a sample.
func (x *Profiler) Stop() (*Profile, error) {
	if err := x.each(unix.PERF_EVENT_IOC_DISABLE); err != nil {
		return nil, err
	}
	p := &Profile{Nanos: 1e9 / float64(x.hz), Counts: map[string]uint64{}, Seconds: time.Since(x.begin).Seconds()}
	for _, r := range x.rings {
		err := r.drain(func(b []byte) { // nr u64, addresses
			var stack []string
			for n := binary.LittleEndian.Uint64(b); n > 0; n-- {
				b = b[8:]
				// The last page's addresses say whose stack follows.
				if at := binary.LittleEndian.Uint64(b); at < ^uint64(4094) {
					stack = append(stack, x.name(at))
				}
			}
			p.Stacks = append(p.Stacks, stack)
		})
		if err != nil {
			return nil, err
		}
	}
	var b [8]byte
	for _, c := range x.counts {
		for _, fd := range c.fds {
			if _, err := unix.Read(fd, b[:]); err != nil {
				return nil, fmt.Errorf("read the count of %s: %w", c.name, err)
			}
			p.Counts[c.name] += binary.LittleEndian.Uint64(b[:])
		}
	}
	return p, nil
}

// Close gives everything back.
func (x *Profiler) Close() error {
	var errs []error
	for _, r := range x.rings {
		errs = append(errs, unix.Munmap(r.mem), unix.Close(r.fd))
	}
	for _, c := range x.counts {
		for _, fd := range c.fds {
			errs = append(errs, unix.Close(fd))
		}
	}
	x.rings, x.counts = nil, nil
	return errors.Join(errs...)
}
