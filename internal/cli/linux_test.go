//go:build linux

package cli

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestInterruptLinux: SIGINT while a comparison has a file in the folder of --linux. The table of what was done is printed, and the file
// is gone.
func TestInterruptLinux(t *testing.T) {
	dir := t.TempDir()
	var out, errw strings.Builder
	cmd := exec.Command(program(t), "compare", "--policy", "locked", "--linux", dir, "--size", "4M", "--jobs", "1", "--rounds", "1000")
	cmd.Stdout, cmd.Stderr = &out, &errw
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		l, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(l) == 1 && strings.HasPrefix(l[0].Name(), "btrlab-") {
			break
		}
		select {
		case err := <-ended:
			t.Fatalf("it ended before it made a file: %v %s", err, errw.String())
		default:
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	wantExit(t, <-ended, exitInterrupted)
	if l, _ := os.ReadDir(dir); len(l) != 0 {
		t.Errorf("%d files are left", len(l))
	}
	if !strings.Contains(out.String(), "linux-nowait") {
		t.Errorf("no table:\n%s%s", out.String(), errw.String())
	}
}
