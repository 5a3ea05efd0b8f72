package kernel

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"btrlab/internal/interop"
	"btrlab/internal/judge/kernels"
	"btrlab/internal/judge/park"
	"btrlab/internal/judge/park/reproducer"
	"btrlab/internal/policy"
	"btrlab/internal/study/scenario"
	"btrlab/internal/testing/need"
)

// Without btrlab, by the folder that it writes, a kernel does what it does with it: a write that
// waits for itself breaks 5.10 and no later one, a NOWAIT write that waits for its folio breaks
// each from 6.1 on.
func TestKernelReproducer(t *testing.T) {
	need.All(t, "gcc", "python3", "cpio")
	for i, number := range []int{15, 41} {
		e := &park.Exhibits[slices.IndexFunc(park.Exhibits, func(e park.Exhibit) bool { return e.Number == number })]
		m := e.Museum()
		s, err := scenario.Lookup(m.Scenario)
		interop.Must(t, err)
		for _, k := range booted(t) {
			t.Run(fmt.Sprintf("%d on %s", number, k.Version), func(t *testing.T) {
				dir := t.TempDir()
				interop.Must(t, reproducer.Write(dir, &reproducer.Subject{Title: m.Title, Story: m.Story, Rule: m.Rule, Scenario: s, Policy: policy.MustParse(m.Broken),
					Led: &park.Replayed{Scenario: s.Name, Policy: m.Broken, Schedule: e.Schedule, Release: k.Release}}))
				kernel := []string{filepath.Join(kernels.Folder(), k.Version)}
				if i > 0 {
					kernel = []string{k.Image, k.Modules}
				}
				want, says := 0, "\nkeeps: "
				if slices.Contains(e.Broken, k.Version) {
					want, says = 1, "\nbreaks: task 0 "
				}
				code, out := runScript(t, dir, kernel...)
				if code != want || !strings.Contains(out, says) || !strings.Contains(out, "Linux "+k.Release) {
					t.Errorf("run.sh ends with %d, want %d:\n%s", code, want, out)
				}
				t.Logf("%s", out)
			})
		}
	}
}

// runScript runs the script of a folder with all that it starts, and gives its exit code.
func runScript(t *testing.T, dir string, args ...string) (code int, out string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bootTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", append([]string{filepath.Join(dir, "run.sh")}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	b, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(b)
}
