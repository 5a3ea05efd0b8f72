package interop

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"btrlab/internal/judge/kernels"
	"btrlab/internal/judge/kernels/jobs"
	"btrlab/internal/testing/need"
)

var kernelsAll = flag.Bool("kernels.all", false, "ask each kernel that is installed, not one of them")

// bootTime is how long a guest may run.
const bootTime = 8 * time.Minute

// guestProgram builds the static btrlab that guests run.
var guestProgram = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "btrlab-guest")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "btrlab")
	cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", path, "btrlab/cmd/btrlab")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", errors.New(string(out))
	}
	return path, nil
})

// booted are the kernels that a test asks: all that are installed with -kernels.all, or else the
// oldest one and the newest.
func booted(t *testing.T) []*kernels.Kernel {
	t.Helper()
	need.All(t, "qemu-system-x86_64", "mkfs.btrfs", "btrfs")
	list := kernels.Installed()
	if len(list) == 0 {
		need.Without(t, "other kernel in "+kernels.Folder()+" (make kernels)")
	}
	if !*kernelsAll && len(list) > 2 {
		list = []*kernels.Kernel{list[0], list[len(list)-1]}
	}
	return list
}

// asked boots a kernel for a job, which must succeed.
func asked(t *testing.T, m *kernels.Machine, job string, args ...string) *kernels.Result {
	t.Helper()
	var err error
	if m.Program, err = guestProgram(); err != nil {
		t.Fatal(err)
	}
	m.Args = jobs.Args(job, args...)
	ctx, cancel := context.WithTimeout(context.Background(), bootTime)
	defer cancel()
	r, err := kernels.Run(ctx, m)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(r.Log, "\n") {
		for _, bad := range []string{"BTRFS error", "BTRFS critical", "BUG:", "WARNING: CPU", "Oops"} {
			if strings.Contains(line, bad) {
				t.Errorf("%s says: %s", m.Kernel.Release, line)
			}
		}
	}
	if r.Exit != 0 {
		t.Fatalf("%s: exit code %d\n%s%s", m.Kernel.Release, r.Exit, tail([]byte(r.Output)), tail([]byte(r.Errors)))
	}
	return r
}

// A kernel boots, does its job and is turned off; a job that fails has its exit code, and a machine
// that is stopped leaves no result.
func TestKernelBoots(t *testing.T) {
	k := booted(t)[0]
	r := asked(t, &kernels.Machine{Kernel: k, Files: map[string][]byte{"note": []byte("to the guest")}}, "echo", "/note")
	if r.Output != k.Release+"\n" || string(r.Files["note"]) != "to the guest" {
		t.Errorf("the guest says %q, and %q came back, want its release %s and the note", r.Output, r.Files, k.Release)
	}
	program, err := guestProgram()
	must(t, err)
	m := &kernels.Machine{Kernel: k, Program: program, Args: jobs.Args("echo", "/nothing")}
	if r, err = kernels.Run(context.Background(), m); err != nil || r.Exit != 1 || !strings.Contains(r.Errors, "no such file") {
		t.Errorf("a job that fails: %+v, %v, want exit code 1", r, err)
	}
	g, err := kernels.Boot(context.Background(), m)
	must(t, err)
	must(t, g.Stop())
	if _, err := g.Wait(); !errors.Is(err, kernels.ErrNoResult) {
		t.Errorf("a machine that was stopped: %v", err)
	}
}
