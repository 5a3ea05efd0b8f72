// Package park has tasks of a real kernel take their steps in an order that is given: a task stops
// at the entry of a function of the kernel until it is let go on. The kernel is a distribution's,
// without a module or a patch, booted by package kernels.
//
// A processor of the guest is a task. The guest's agent (Agent) binds each task to a processor of
// its own, on which nothing else runs; a breakpoint of qemu's stub for gdb (package kernels/gdb)
// stops that processor at a function, and the others go on without it. So a task can be parked
// anywhere, also where it holds a spinlock or must not sleep, nothing in the guest is changed, and
// who stands at a breakpoint is known by the processor. A call of schedule_timeout_uninterruptible
// put into the task's way, which lets its processor run others, was tried before: it needs the
// task's identity, its preempt_count, and registers put back; and a processor cost nothing.
//
// What a parked processor does not do is answer: a function that waits for all processors
// (synchronize_rcu, an interrupt to all) waits for the parked task too. Such a wait ends as
// ErrHeld, with the stack, as that for a lock does.
//
// Processor 0 is never parked. It runs the agent, the workers of the kernel and all interrupts of
// the disk.
//
// Model: none of the kernel's; this orders the kernel's own tasks.
package park

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"btrlab/internal/judge/kernels"
	"btrlab/internal/judge/kernels/gdb"
)

// MaxTasks is how many tasks a machine has processors for.
const MaxTasks = 4

// Machine is a booted kernel whose tasks can be parked. Its methods are for one goroutine.
type Machine struct {
	Release string // of the kernel

	guest   *kernels.Guest
	dir     string
	control net.Conn
	replies chan reply
	stub    *gdb.Conn
	symbols map[string]uint64
	asked   int // requests until now
	broken  map[uint64]int
	running bool
}

// kernelArgs keep processors to their tasks. A clock that ticks everywhere keeps the time on
// processor 0, which gets all interrupts; addresses of functions are those of the kernel's file.
var kernelArgs = []string{"nokaslr", "nohz=off", "irqaffinity=0", "nowatchdog", "rcupdate.rcu_cpu_stall_suppress=1", "mitigations=off",
	// What asks all processors and waits for their answer waits for those that stand still:
	// khugepaged, grace periods that are in a hurry, the watch over the clock.
	"transparent_hugepage=never", "rcupdate.rcu_normal=1", "tsc=nowatchdog",
	fmt.Sprintf("isolcpus=managed_irq,domain,1-%d", MaxTasks)}

// Options are what Boot is given.
type Options struct {
	Kernel  *kernels.Kernel
	Program string   // a static btrlab
	Args    []string // with which it becomes the agent
	// Image is the path of the disk that the tasks work on, which is written.
	Image string
}

// Boot starts a machine and waits for its agent. Call Close. Errors are one line.
func Boot(ctx context.Context, o Options) (_ *Machine, err error) {
	m := &Machine{replies: make(chan reply, 4), symbols: map[string]uint64{}, broken: map[uint64]int{}}
	if m.dir, err = os.MkdirTemp("", "btrlab-park"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	control, stub := filepath.Join(m.dir, "control"), filepath.Join(m.dir, "gdb")
	listener, err := net.Listen("unix", control)
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	m.guest, err = kernels.Boot(ctx, &kernels.Machine{Kernel: o.Kernel, Program: o.Program, Args: o.Args, Disks: []string{o.Image}, Dir: m.dir,
		Processors: 1 + MaxTasks, KernelArgs: kernelArgs, QemuArgs: []string{"-global", "virtio-blk-pci.num-queues=1", "-device", "virtio-serial-pci", "-chardev", "socket,id=control,path=" + control,
			"-device", "virtserialport,chardev=control", "-gdb", "unix:" + stub + ",server=on,wait=off"}})
	if err != nil {
		return nil, err
	}
	accepted := make(chan error, 1)
	go func() {
		var err error
		m.control, err = listener.Accept()
		accepted <- err
	}()
	select {
	case err = <-accepted:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	go m.listen()
	m.running = true
	hello, err := m.answer(ctx, 0)
	if err != nil {
		return nil, err
	}
	m.Release = hello.Release
	if err := m.Lookup(ctx, []string{gateFunction}); err != nil {
		return nil, err
	}
	if _, err := m.Find(ctx, Functions()); err != nil {
		return nil, err
	}
	c, err := net.Dial("unix", stub)
	if err != nil {
		return nil, err
	}
	m.running = false
	m.stub, err = gdb.Open(c)
	return m, err
}

// gateFunction is the entry of the system call that is the gate.
const gateFunction = "__x64_sys_getppid"

// Close ends the machine, as a power cut does.
func (m *Machine) Close() error {
	var err error
	if m.guest != nil {
		err = m.guest.Stop()
		if _, werr := m.guest.Wait(); !errors.Is(werr, kernels.ErrNoResult) {
			err = errors.Join(err, werr)
		}
	}
	if m.control != nil {
		err = errors.Join(err, m.control.Close())
	}
	if m.stub != nil {
		err = errors.Join(err, m.stub.Close())
	}
	return errors.Join(err, os.RemoveAll(m.dir))
}

// listen gives what the agent says to replies, which it closes at the end.
func (m *Machine) listen() {
	defer close(m.replies)
	in := bufio.NewReader(m.control)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var rp reply
		if err := json.Unmarshal(line, &rp); err != nil {
			rp = reply{ID: -1, Error: fmt.Sprintf("the agent says %q: %v", line, err)}
		}
		m.replies <- rp
	}
}

// ErrAgent means that the guest's agent could not do what it was asked.
var ErrAgent = errors.New("the guest's agent")

func (m *Machine) say(rq *request) error {
	m.asked++
	rq.ID = m.asked
	b, err := json.Marshal(rq)
	if err != nil {
		return err
	}
	_, err = m.control.Write(append(b, '\n'))
	return err
}

// judged is a reply without what went wrong.
func (m *Machine) judged(rp reply, open bool) (*reply, error) {
	if !open {
		x, err := m.guest.Wait()
		m.guest = nil
		if err == nil {
			err = errors.New(strings.TrimPrefix(strings.TrimSpace(x.Errors), "btrlab: "))
		}
		return nil, fmt.Errorf("%w ended: %w", ErrAgent, err)
	}
	if rp.Error != "" {
		return nil, fmt.Errorf("%w: %s", ErrAgent, rp.Error)
	}
	return &rp, nil
}

// ask has the agent do something while no task is parked, and everything runs.
func (m *Machine) ask(ctx context.Context, rq *request) (*reply, error) {
	if err := m.free(); err != nil {
		return nil, err
	}
	if err := m.say(rq); err != nil {
		return nil, err
	}
	return m.answer(ctx, rq.ID)
}

// answer waits for the reply to a request.
func (m *Machine) answer(ctx context.Context, id int) (*reply, error) {
	for {
		select {
		case rp, open := <-m.replies:
			if open && rp.ID != id && rp.ID >= 0 {
				continue // of a look that nobody waits for any more
			}
			return m.judged(rp, open)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// free lets the whole machine run, without breakpoints.
func (m *Machine) free() error {
	if m.running {
		return nil
	}
	for addr := range m.broken {
		if err := m.stub.Clear(addr); err != nil {
			return err
		}
		delete(m.broken, addr)
	}
	m.running = true
	all := make([]int, 1+MaxTasks)
	for i := range all {
		all[i] = i
	}
	return m.stub.Resume(all)
}

// halt stops the whole machine.
func (m *Machine) halt(ctx context.Context) error {
	if !m.running {
		return nil
	}
	m.running = false
	if err := m.stub.Interrupt(); err != nil {
		return err
	}
	_, err := m.stub.Wait(ctx)
	return err
}

// ErrNoFunction means that the kernel has no such function, or several.
var ErrNoFunction = errors.New("no such function of the kernel")

// Lookup finds the entries of functions, each of which the kernel must have once. Find finds those
// that it has.
func (m *Machine) Lookup(ctx context.Context, functions []string) error {
	missing, err := m.Find(ctx, functions)
	if err == nil && missing != nil {
		err = fmt.Errorf("kernel %s: %w: %s", m.Release, ErrNoFunction, strings.Join(missing, ", "))
	}
	return err
}

// Find finds the entries of functions, and gives those that the kernel does not have once, each
// with how often it has it.
func (m *Machine) Find(ctx context.Context, functions []string) (missing []string, err error) {
	names := slices.DeleteFunc(slices.Clone(functions), func(f string) bool { return m.symbols[f] != 0 })
	if len(names) == 0 {
		return nil, nil
	}
	rp, err := m.ask(ctx, &request{Do: "symbols", Names: names})
	if err != nil {
		return nil, err
	}
	for _, f := range names {
		switch list := rp.Symbols[f]; len(list) {
		case 1:
			m.symbols[f] = list[0]
		default:
			missing = append(missing, fmt.Sprintf("%s (%d)", f, len(list)))
		}
	}
	return missing, nil
}

// Unmapped are the engine's steps that have functions in the map, none of which the kernel has.
func (m *Machine) Unmapped() (steps []string) {
	for _, p := range points {
		if !slices.ContainsFunc(p.functions, func(f string) bool { return m.symbols[f] != 0 }) {
			steps = append(steps, p.step)
		}
	}
	return steps
}

// Mount mounts the disk and does calls there, one after the other.
func (m *Machine) Mount(ctx context.Context, options string, calls []Call) ([]Result, error) {
	rp, err := m.ask(ctx, &request{Do: "mount", Mount: options, Setup: calls})
	if err != nil {
		return nil, err
	}
	return rp.Setup, nil
}

// Unmount unmounts the disk, whose image the host may then read, and write.
func (m *Machine) Unmount(ctx context.Context) error {
	_, err := m.ask(ctx, &request{Do: "unmount"})
	return err
}

// ReadFile reads a file of the mounted disk.
func (m *Machine) ReadFile(ctx context.Context, name string) ([]byte, error) {
	rp, err := m.ask(ctx, &request{Do: "read", File: name})
	if err != nil {
		return nil, err
	}
	return rp.Bytes, nil
}
