// Package jobs has the jobs that a guest of package kernels can do: what is asked of another
// kernel. A job is a function of the arguments; its files go to kernels.Out.
//
// Model: none of the kernel's; this asks kernels.
package jobs

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"btrlab/internal/hostio"
	"btrlab/internal/judge/kernels"
	"btrlab/internal/judge/park"
)

// word is the argument before the name of a job.
const word = "btrlab-job"

// jobs are those that there are, by name.
var jobs = map[string]func(out io.Writer, args []string) error{
	"conform": record,
	"pairs":   recordPairs,
	"tasks":   park.Agent,
	"echo":    echo,
}

// echo prints the kernel's release and gives a file back under its own name.
func echo(out io.Writer, args []string) error {
	fmt.Fprintln(out, hostio.Release())
	b, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(kernels.Out, filepath.Base(args[0])), b, 0o644)
}

// Args is the command line of a job.
func Args(name string, args ...string) []string { return append([]string{word, name}, args...) }

// Main does what a guest's process is for, if the program is one: the guest's init, or a job. The
// exit code of a job is 1 if it failed, which it says on errw.
func Main(args []string, out, errw io.Writer) (code int, yes bool) {
	if kernels.IsGuest(args) {
		kernels.Init()
	}
	if len(args) < 3 || args[1] != word {
		return 0, false
	}
	do := jobs[args[2]]
	if do == nil {
		fmt.Fprintf(errw, "btrlab: no job %q\n", args[2])
		return 2, true
	}
	if err := do(out, args[3:]); err != nil {
		fmt.Fprintf(errw, "btrlab: %v\n", err)
		return 1, true
	}
	return 0, true
}
