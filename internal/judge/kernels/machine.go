package kernels

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Machine is what Boot starts.
type Machine struct {
	Kernel  *Kernel
	Program string // path of a static btrlab, which becomes /init and does the job
	Args    []string
	// Disks are raw images: /dev/vda of the guest, /dev/vdb and so on, which it writes in place.
	Disks []string
	// Files are put into the guest's root folder, by name.
	Files map[string][]byte
	// Dir takes the initramfs, the result disk and the console; "" is a temporary folder.
	Dir string
	// MemoryMiB is the guest's memory; 0 is 1500. Processors is how many it has; 0 is 2.
	MemoryMiB, Processors int
	// KernelArgs are added to the kernel's command line, as nokaslr; QemuArgs to qemu's, as -gdb.
	KernelArgs, QemuArgs []string
}

// Result is what a job left.
type Result struct {
	Exit   int               // of the job
	Output string            // its standard output
	Errors string            // its standard error
	Log    string            // the kernel's messages
	Files  map[string][]byte // what it wrote into /out
}

// Guest is a machine that runs.
type Guest struct {
	cmd     *exec.Cmd
	kernel  *Kernel
	dir     string
	made    bool // dir is temporary
	result  string
	console string
	ended   chan error
	hung    atomic.Bool // giveUp has ended it
}

// ErrNoQemu means that there is no emulator on this machine.
var ErrNoQemu = errors.New("qemu-system-x86_64 is not installed (package qemu-system-x86)")

// ErrNoResult means that the guest ended without a result: the kernel did not boot, or it died.
var ErrNoResult = errors.New("the guest left no result")

// ErrNoBoot is an ErrNoResult of a kernel that did not come to its job.
var ErrNoBoot = fmt.Errorf("%w, as it did not boot", ErrNoResult)

const (
	emulator   = "qemu-system-x86_64"
	resultSize = 256 << 20 // bytes, sparse
)

// Run boots the machine and waits for the end of the job. A kernel that dies or hangs before the
// job begins has touched no disk, and is booted again.
func Run(ctx context.Context, m *Machine) (*Result, error) {
	for try := 1; ; try++ {
		g, err := Boot(ctx, m)
		if err != nil {
			return nil, err
		}
		late := time.AfterFunc(bootTime, g.giveUp)
		r, err := g.Wait()
		late.Stop()
		if try == bootTries || !errors.Is(err, ErrNoBoot) || ctx.Err() != nil {
			return r, err
		}
	}
}

// bootTries is how often a kernel is booted that does not come to its job in bootTime, which is ten
// times what it takes on a busy host. Emulated ones die in an interrupt then, or go round for ever:
// of 190 boots on a busy host one hung.
const (
	bootTries = 3
	bootTime  = 5 * time.Minute
)

// Boot starts a machine, which ends with its job, by Stop or with ctx. Call Wait.
func Boot(ctx context.Context, m *Machine) (_ *Guest, err error) {
	qemu, err := exec.LookPath(emulator)
	if err != nil {
		return nil, ErrNoQemu
	}
	g := &Guest{kernel: m.Kernel, dir: m.Dir, ended: make(chan error, 1)}
	if g.dir == "" {
		if g.dir, err = os.MkdirTemp("", "btrlab-kernel"); err != nil {
			return nil, err
		}
		g.made = true
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.clean())
		}
	}()
	initramfs := filepath.Join(g.dir, "initramfs")
	if err := writeFile(initramfs, m.writeInitramfs); err != nil {
		return nil, err
	}
	g.result, g.console = filepath.Join(g.dir, "result"), filepath.Join(g.dir, "console")
	if err := writeFile(g.result, func(w io.Writer) error { return w.(*os.File).Truncate(resultSize) }); err != nil {
		return nil, err
	}
	memory, processors := cmp.Or(m.MemoryMiB, 1500), cmp.Or(m.Processors, 2)
	kargs := append([]string{"console=ttyS0", "loglevel=5", "panic=-1", "rdinit=/init"}, m.KernelArgs...)
	args := []string{"-accel", "tcg,thread=multi", "-cpu", "max", "-smp", strconv.Itoa(processors), "-m", strconv.Itoa(memory), "-display", "none", "-monitor", "none", "-serial", "file:" + g.console,
		"-nodefaults", "-no-reboot", "-kernel", m.Kernel.Image, "-initrd", initramfs, "-append", strings.Join(append(kargs, "--", guestWord), " ")}
	for _, disk := range append(append([]string{}, m.Disks...), g.result) {
		args = append(args, "-drive", "if=virtio,format=raw,cache=unsafe,file="+strings.ReplaceAll(disk, ",", ",,"))
	}
	g.cmd = exec.CommandContext(ctx, qemu, append(args, m.QemuArgs...)...)
	var said strings.Builder
	g.cmd.Stderr = &said
	dieWithUs(g.cmd)
	started := make(chan error)
	go func() {
		// The kernel takes the end of the thread that started it for the end of its parent.
		runtime.LockOSThread()
		err := g.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		err = g.cmd.Wait()
		if err != nil && ctx.Err() != nil {
			err = ctx.Err()
		} else if err != nil {
			err = fmt.Errorf("%s: %w: %s", emulator, err, lastLine(said.String()))
		}
		g.ended <- err
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("%s: %w", emulator, err)
	}
	return g, nil
}

func writeFile(path string, write func(w io.Writer) error) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return write(f)
}

// Console is what the guest has written to its console until now.
func (g *Guest) Console() string {
	b, _ := os.ReadFile(g.console) // it is not there before the first line
	return string(b)
}

// giveUp ends a machine that has not come to its job.
func (g *Guest) giveUp() {
	if !strings.Contains(g.Console(), jobBegins) {
		g.hung.Store(true)
		_ = g.Stop() // it has ended meanwhile
	}
}

// Stop ends the machine as a power cut does. Wait then returns ErrNoResult.
func (g *Guest) Stop() error { return g.cmd.Process.Kill() }

// Wait waits for the end of the machine and returns what the job left. An error wraps ErrNoResult
// where the machine ended without a result, and has the last line of the console.
func (g *Guest) Wait() (_ *Result, err error) {
	err = <-g.ended
	defer func() { err = errors.Join(err, g.clean()) }()
	if err != nil && errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("kernel %s: %w", g.kernel.Release, err)
	}
	r, rerr := readResult(g.result)
	if rerr != nil || r.Exit < 0 {
		console := g.Console()
		switch {
		case g.hung.Load():
			return nil, fmt.Errorf("kernel %s: %w in %v: %s", g.kernel.Release, ErrNoBoot, bootTime, lastWords(console))
		case err != nil: // the emulator's
			return nil, fmt.Errorf("kernel %s: %w: %w", g.kernel.Release, ErrNoResult, err)
		case strings.Contains(console, jobBegins):
			return nil, fmt.Errorf("kernel %s: %w: %s", g.kernel.Release, ErrNoResult, lastWords(console))
		}
		return nil, fmt.Errorf("kernel %s: %w: %s", g.kernel.Release, ErrNoBoot, lastWords(console))
	}
	return r, nil
}

func (g *Guest) clean() error {
	if g.made {
		return os.RemoveAll(g.dir)
	}
	return nil
}

// lastLine is the last line that is not empty.
func lastLine(s string) string {
	last := "it said nothing"
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" {
			last = line
		}
	}
	return last
}

// lastWords are the lines of a console that say how a kernel died and where, or its last line.
func lastWords(console string) string {
	var said []string
	for line := range strings.Lines(console) {
		for _, word := range []string{"BUG: ", "Oops: ", "RIP: ", "Kernel panic"} {
			if strings.Contains(line, word) {
				said = append(said, strings.TrimSpace(line))
				break
			}
		}
		if strings.Contains(line, "Kernel panic") {
			break
		}
	}
	if len(said) == 0 {
		return lastLine(console)
	}
	return strings.Join(said, "; ")
}

// readResult reads the tar archive of a result disk. Exit is -1 in one that is cut short.
func readResult(path string) (*Result, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := &Result{Exit: -1, Files: map[string][]byte{}}
	for in := tar.NewReader(f); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return r, nil
		}
		if err != nil {
			return nil, err
		}
		b, err := io.ReadAll(in)
		if err != nil {
			return nil, err
		}
		switch h.Name {
		case outputName:
			r.Output = string(b)
		case errorsName:
			r.Errors = string(b)
		case logName:
			r.Log = string(b)
		case exitName:
			if r.Exit, err = strconv.Atoi(string(b)); err != nil {
				return nil, err
			}
		default:
			r.Files[h.Name] = b
		}
	}
}

// jobBegins is the line with which the guest tells the console that its job begins.
const jobBegins = "btrlab: the job begins"

// guestWord is the argument by which the program knows that it is the guest's init.
const guestWord = "btrlab-guest"

// The files of a result archive that are no files of the job's; the last one is the exit code.
const (
	outputName = ".stdout"
	errorsName = ".stderr"
	logName    = ".dmesg"
	exitName   = ".exit"
)
