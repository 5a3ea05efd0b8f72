//go:build unix

package sandbox

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// openNow opens a named pipe without a wait for its writer.
const openNow = syscall.O_NONBLOCK

// command is a program in a process group of its own, which is killed as a whole when ctx ends.
func command(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = dir
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	return c
}

// bind bounds what the system gives this process: memory that a single allocation takes before the
// watchdog looks, files, and, as the last resort, the processor time. A system that knows no such
// bound goes without.
func bind(cpu time.Duration) {
	limit := func(what int, most uint64) {
		var l syscall.Rlimit
		if syscall.Getrlimit(what, &l) != nil {
			return
		}
		if uint64(l.Cur) > most {
			l.Cur = most
			_ = syscall.Setrlimit(what, &l)
		}
	}
	limit(syscall.RLIMIT_AS, maxAddress)
	limit(syscall.RLIMIT_FSIZE, maxWritten)
	limit(syscall.RLIMIT_CORE, 0)
	if cpu > 0 {
		limit(syscall.RLIMIT_CPU, uint64(cpu/time.Second)+2)
	}
}

// cpuTime is the processor time of this process.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// goTool is a run of the go tool on a submission: each process of it has the limits of a build.
func goTool(ctx context.Context, dir string, args ...string) (*exec.Cmd, error) {
	path, err := exec.LookPath("go")
	if err != nil {
		return nil, err
	}
	return limited(ctx, dir, "exec", append([]string{strconv.Itoa(int(buildCPU / time.Second)), strconv.Itoa(buildAddress), strconv.Itoa(buildWritten), path}, args...)...)
}

// become sets limits of the system's for this process and turns it into another program, whose
// children have them as well. args: processor time in seconds, bytes of address space, bytes of a
// file, the program and its arguments. The limits are hard, so that the system kills at once.
func become(args []string) {
	for i, what := range []int{syscall.RLIMIT_CPU, syscall.RLIMIT_AS, syscall.RLIMIT_FSIZE} {
		n, err := strconv.ParseUint(args[i], 10, 63)
		var l syscall.Rlimit
		if err == nil {
			err = syscall.Getrlimit(what, &l)
		}
		if err != nil {
			panic(err)
		}
		if uint64(l.Cur) > n {
			l.Cur = n
		}
		l.Max = l.Cur
		_ = syscall.Setrlimit(what, &l) // a system that knows no such bound goes without
	}
	env := slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, orderVar+"=") })
	panic(syscall.Exec(args[3], args[3:], env))
}
