//go:build !portable

package park

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"btrlab/internal/hostio"
	"btrlab/internal/study/scenario"
)

// ports are where the port is over which the agent and the host speak, of a virtio console.
const ports = "/dev/vport*p1"

// where the guest mounts its first disk.
const mountPoint, disk = "/mnt", "/dev/vda"

// Agent does what the host asks until it is told to end.
func Agent(_ io.Writer, _ []string) (err error) {
	list, err := filepath.Glob(ports)
	if err == nil && len(list) != 1 {
		err = fmt.Errorf("have ports %q, want one", list)
	}
	if err != nil {
		return err
	}
	f, err := os.OpenFile(list[0], os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	a := agent{files: map[string]*os.File{}}
	in, out := bufio.NewReader(f), json.NewEncoder(f)
	if err := out.Encode(&reply{Release: hostio.Release()}); err != nil {
		return err
	}
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return err
		}
		var rq request
		if err := json.Unmarshal(line, &rq); err != nil {
			return fmt.Errorf("the host says %q: %w", line, err)
		}
		rp := reply{ID: rq.ID}
		if err := a.do(&rq, &rp); err != nil {
			rp.Error = err.Error()
		}
		if err := out.Encode(&rp); err != nil || rq.Do == "end" {
			return err
		}
	}
}

// agent is the guest's side: a mounted disk, its open files, and the tasks.
type agent struct {
	files  map[string]*os.File
	maps   [][]byte // of those files
	tasks  []*task
	nudges [1 + MaxTasks]int // process that nudges a processor, or has
}

// task is a process that spawn has started.
type task struct {
	pid   int
	calls []Call
	traps []trap
	out   []landed
	keep  [][]byte // what the traps point to
	touch [][]byte // the part of it that is there when they begin
	reads []int    // of each call, the part of keep that it reads into, or -1
}

func (a *agent) do(rq *request, rp *reply) (err error) {
	switch rq.Do {
	case "symbols":
		rp.Symbols, err = symbols(rq.Names)
	case "mount":
		rp.Setup, err = a.mount(rq.Mount, rq.Setup)
	case "start":
		err = a.start(rq.Tasks)
	case "look":
		rp.State, err = a.look(rq.Task, rq.Held)
	case "results":
		rp.Results, err = a.results()
	case "read":
		rp.Bytes, err = os.ReadFile(filepath.Join(mountPoint, rq.File))
	case "unmount":
		err = a.unmount()
	case "end":
	default:
		err = fmt.Errorf("the host asks for %q", rq.Do)
	}
	return err
}

// symbols looks functions up in the kernel and its modules. A name may have several.
func symbols(names []string) (map[string][]uint64, error) {
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	found := map[string][]uint64{}
	for in := bufio.NewScanner(f); in.Scan(); {
		words := strings.Fields(in.Text())
		if len(words) < 3 || !strings.ContainsAny(words[1], "tTwW") || !slices.Contains(names, words[2]) {
			continue
		}
		addr, err := strconv.ParseUint(words[0], 16, 64)
		if err != nil {
			return nil, err
		}
		found[words[2]] = append(found[words[2]], addr)
	}
	return found, nil
}

func (a *agent) mount(options string, setup []Call) ([]Result, error) {
	// The disk has one queue, whose interrupts are processor 0's. The end of a request is not told
	// to the processor that has submitted it, which may stand still.
	if err := os.WriteFile("/sys/block/vda/queue/rq_affinity", []byte("0"), 0); err != nil {
		return nil, err
	}
	if err := unix.Mount(disk, mountPoint, "btrfs", 0, options); err != nil {
		return nil, fmt.Errorf("mount: %w", err)
	}
	t, err := a.prepare(setup)
	if err != nil {
		return nil, err
	}
	for i := range t.traps {
		x := &t.traps[i]
		r1, _, e := unix.Syscall6(x.number, x.args[0], x.args[1], x.args[2], x.args[3], x.args[4], x.args[5])
		t.out[i] = landed{r1, uintptr(e), 1}
	}
	return t.results(), nil
}

// start makes the tasks, each on a processor of its own: the first on processor 1.
func (a *agent) start(tasks [][]Call) error {
	for i, calls := range tasks {
		t, err := a.prepare(calls)
		if err != nil {
			return err
		}
		var mask unix.CPUSet
		mask.Set(i + 1)
		runtime.LockOSThread()
		pid, errno := spawn(&mask, t.traps, t.out, t.touch)
		runtime.UnlockOSThread()
		if errno != 0 {
			return fmt.Errorf("start a task: %w", errno)
		}
		t.pid = int(pid)
		a.tasks = append(a.tasks, t)
	}
	return nil
}

// prepare makes the traps of calls.
func (a *agent) prepare(calls []Call) (*task, error) {
	t := &task{calls: calls, traps: make([]trap, len(calls)), reads: make([]int, len(calls))}
	size := max(1, len(calls)) * int(unsafe.Sizeof(landed{}))
	shared, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANON|unix.MAP_POPULATE)
	if err != nil {
		return nil, err
	}
	t.out = unsafe.Slice((*landed)(unsafe.Pointer(&shared[0])), len(calls))
	for i := range calls {
		t.reads[i] = -1
		if err := a.trap(t, i); err != nil {
			return nil, fmt.Errorf("%s %s: %w", calls[i].Verb, calls[i].File, err)
		}
	}
	return t, nil
}

// file opens a file of the disk, or finds it open.
func (a *agent) file(name string, flags int) (uintptr, error) {
	key := fmt.Sprint(name, flags)
	if f := a.files[key]; f != nil {
		return f.Fd(), nil
	}
	path := filepath.Join(mountPoint, name)
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		return 0, unix.EISDIR
	}
	f, err := os.OpenFile(path, flags|unix.O_CREAT, 0o644)
	if err != nil {
		return 0, err
	}
	a.files[key] = f
	return f.Fd(), nil
}

// privilege gives a file a capability, as setcap does.
func (t *task) privilege(fd uintptr, set func(uintptr, ...uintptr)) error {
	const attribute = "security.capability\x00"
	netRaw := scenario.CapNetRaw
	b, err := t.memory(int64(len(netRaw)+len(attribute)), false)
	if err != nil {
		return err
	}
	copy(b[copy(b, netRaw):], attribute)
	set(unix.SYS_FSETXATTR, fd, pointer(b[len(netRaw):]), pointer(b), uintptr(len(netRaw)), 0)
	return nil
}

// memory is part of a mapping that is there, and that a task finds at the same place.
func (t *task) memory(n int64, shared bool) ([]byte, error) {
	kind := unix.MAP_PRIVATE
	if shared {
		kind = unix.MAP_SHARED
	}
	b, err := unix.Mmap(-1, 0, int(max(n, 1)), unix.PROT_READ|unix.PROT_WRITE, kind|unix.MAP_ANON|unix.MAP_POPULATE)
	if err == nil {
		t.keep, t.touch = append(t.keep, b), append(t.touch, b)
	}
	return b, err
}

// source is the memory that a write writes from.
func (a *agent) source(t *task, c *Call) ([]byte, error) {
	if c.Mapped {
		fd, err := a.file(c.File, unix.O_RDWR)
		if err != nil {
			return nil, err
		}
		b, err := unix.Mmap(int(fd), c.MapOff, int(c.N), unix.PROT_READ, unix.MAP_SHARED)
		if err == nil {
			a.maps = append(a.maps, b)
		}
		return b, err
	}
	text := bytes.Repeat([]byte{c.Fill}, int(c.N))
	if c.Short == 0 {
		b, err := t.memory(c.N, false)
		copy(b, text)
		return b, err
	}
	// A page of a private mapping of a file is not there until it is touched, and has its bytes
	// then.
	fd, err := unix.MemfdCreate("source", 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, text); err != nil {
		return nil, err
	}
	b, err := unix.Mmap(fd, 0, int(c.N), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err == nil {
		t.keep, t.touch = append(t.keep, b), append(t.touch, b[:c.Short])
	}
	return b, err
}

func pointer(b []byte) uintptr { return uintptr(unsafe.Pointer(&b[0])) }

// trap makes the system call of the i-th call.
func (a *agent) trap(t *task, i int) error {
	c, x := &t.calls[i], &t.traps[i]
	set := func(number uintptr, args ...uintptr) {
		x.number = number
		copy(x.args[:], args)
	}
	flags := unix.O_RDWR
	if c.Direct {
		flags |= unix.O_DIRECT
	}
	if c.Append {
		flags |= unix.O_APPEND
	}
	fd, err := a.file(c.File, flags)
	if err != nil {
		return err
	}
	off, n := uintptr(c.Off), uintptr(c.N)
	switch c.Verb {
	case "write", "read":
		return a.transfer(t, i, fd, set)
	case "truncate":
		set(unix.SYS_FTRUNCATE, fd, off)
	case "falloc":
		set(unix.SYS_FALLOCATE, fd, 0, off, n)
	case "punch":
		set(unix.SYS_FALLOCATE, fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
	case "fsync":
		set(unix.SYS_FSYNC, fd)
	case "start":
		set(unix.SYS_SYNC_FILE_RANGE, fd, 0, 0, unix.SYNC_FILE_RANGE_WRITE)
	case "drop":
		set(unix.SYS_FADVISE64, fd, 0, 0, unix.FADV_DONTNEED)
	case "map":
		return fiemap(t, fd, c, set)
	case "privilege":
		return t.privilege(fd, set)
	case "sync":
		set(unix.SYS_SYNCFS, fd)
	default:
		return errors.New("no such call")
	}
	return nil
}

// transfer makes the system call of a write or a read.
func (a *agent) transfer(t *task, i int, fd uintptr, set func(uintptr, ...uintptr)) (err error) {
	c := &t.calls[i]
	var b []byte
	if c.Verb == "read" {
		b, err = t.memory(c.N, true)
		t.reads[i] = len(t.keep) - 1
	} else {
		b, err = a.source(t, c)
	}
	if err != nil {
		return err
	}
	vec, err := t.memory(int64(unsafe.Sizeof(unix.Iovec{})), false)
	if err != nil {
		return err
	}
	*(*unix.Iovec)(unsafe.Pointer(&vec[0])) = unix.Iovec{Base: &b[0], Len: uint64(c.N)}
	number := uintptr(unix.SYS_PWRITEV2)
	if c.Verb == "read" {
		number = unix.SYS_PREADV2
	}
	set(number, fd, pointer(vec), 1, uintptr(c.Off), 0, rwf(c))
	return nil
}

func rwf(c *Call) (flags uintptr) {
	if c.Nowait {
		flags |= unix.RWF_NOWAIT
	}
	if c.DSync {
		flags |= unix.RWF_DSYNC
	}
	return flags
}

// fiemap asks for the extents of a range, and forgets them.
func fiemap(t *task, fd uintptr, c *Call, set func(uintptr, ...uintptr)) error {
	const fsIocFiemap, header = 0xc020660b, 32
	b, err := t.memory(header, false)
	if err != nil {
		return err
	}
	*(*[2]uint64)(unsafe.Pointer(&b[0])) = [2]uint64{uint64(c.Off), uint64(c.N)}
	set(unix.SYS_IOCTL, fd, fsIocFiemap, pointer(b))
	return nil
}

func (t *task) results() []Result {
	list := make([]Result, len(t.calls))
	for i, x := range t.out {
		r := Result{Errno: int(x.errno), Ended: x.ended != 0}
		if x.errno == 0 {
			r.N = int64(x.r1)
		}
		if k := t.reads[i]; k >= 0 && r.N > 0 {
			r.Bytes = bytes.Clone(t.keep[k][:r.N])
		}
		list[i] = r
	}
	return list
}

// results reaps the tasks, which have ended.
func (a *agent) results() ([][]Result, error) {
	var list [][]Result
	for _, t := range a.tasks {
		if _, err := unix.Wait4(t.pid, nil, 0, nil); err != nil {
			return nil, fmt.Errorf("task %d: %w", t.pid, err)
		}
		list = append(list, t.results())
	}
	a.tasks = nil
	return list, nil
}

func (a *agent) unmount() error {
	for _, b := range a.maps {
		if err := unix.Munmap(b); err != nil {
			return err
		}
	}
	a.maps = nil
	for key, f := range a.files {
		if err := f.Close(); err != nil {
			return err
		}
		delete(a.files, key)
	}
	// A file that a task had open to its end is let go by a worker of the kernel, a moment later.
	for i := 0; ; i++ {
		err := unix.Unmount(mountPoint, 0)
		if !errors.Is(err, unix.EBUSY) || i == unmounts {
			return err
		}
		unix.Sync()
	}
}

// unmounts is how often an unmount is tried again.
const unmounts = 100

// looks is how often in a row a task must be found asleep, and the guest with nothing to do.
const looks = 5

// look says where a task is. Nothing runs on the processors that are held.
func (a *agent) look(number int, held []int) (*State, error) {
	pid := a.tasks[number].pid
	var last State
	for i := 0; ; i++ {
		s, err := taskState(pid)
		if err != nil {
			return nil, err
		}
		if s.Busy, err = busy(pid, held); err != nil {
			return nil, err
		}
		idle := s.Busy == ""
		if s.Letter == "R" && idle {
			if err := a.nudge(1 + number); err != nil {
				return nil, err
			}
		}
		s.Quiet = (s.Letter == "D" || s.Letter == "S") && idle && !timed(s.Stack)
		if !s.Quiet || i > 0 && !slices.Equal(s.Stack, last.Stack) {
			s.Quiet = false
			return s, nil
		}
		if i == looks {
			return s, nil
		}
		last = *s
		_, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	}
}

// nudge has a process of real time come to a processor and end there. A task that spins for a lock
// does so as long as the owner is on a processor, and a parked owner is: now that another one wants
// the processor, it stops spinning and sleeps.
func (a *agent) nudge(cpu int) error {
	if pid := a.nudges[cpu]; pid != 0 {
		// One that has come while the processor was parked is still there.
		if done, err := unix.Wait4(pid, nil, unix.WNOHANG, nil); err != nil || done == 0 {
			return err
		}
	}
	var mask unix.CPUSet
	mask.Set(cpu)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pid, errno := visit(&mask, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: fifo, Priority: 1})
	if errno != 0 {
		return fmt.Errorf("start a process: %w", errno)
	}
	a.nudges[cpu] = int(pid)
	return nil
}

// fifo is SCHED_FIFO.
const fifo = 1

// timed says that a task sleeps for a time, after which it looks again.
func timed(stack []string) bool {
	return slices.ContainsFunc(stack, func(f string) bool {
		return strings.HasPrefix(f, "schedule_timeout_") || f == "msleep" || f == "hrtimer_nanosleep" || f == "usleep_range_state"
	})
}

func taskState(pid int) (*State, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	letter, _, _ := strings.Cut(rest, " ")
	s := &State{Letter: letter}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stack", pid))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		_, name, _ := strings.Cut(line, "] ")
		name, _, _ = strings.Cut(name, "+")
		s.Stack = append(s.Stack, strings.TrimSpace(name))
	}
	return s, nil
}

// busy says what else runs than this process and that of a task, on a processor that does, or that
// the disk does something; "" is nothing.
func busy(task int, held []int) (string, error) {
	inflight, err := os.ReadFile("/sys/block/vda/inflight")
	if err != nil {
		return "", err
	}
	for _, n := range strings.Fields(string(inflight)) {
		if n != "0" {
			return "the disk", nil
		}
	}
	list, err := os.ReadDir("/proc")
	if err != nil {
		return "", err
	}
	for _, e := range list {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() || pid == task {
			continue
		}
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue // it has ended
		}
		name, rest, _ := strings.Cut(string(b), ") ")
		words := strings.Fields(rest)
		const processor = 39 - 3 // of the fields after the name, which is the second
		if len(words) <= processor || words[0] != "R" {
			continue
		}
		if cpu, err := strconv.Atoi(words[processor]); err != nil || !slices.Contains(held, cpu) {
			return name + ")", err
		}
	}
	return "", nil
}
