//go:build linux

package cli

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/cli/app"
	"btrlab/internal/testing/need"
)

// TestCompareSeedLinux: the job of seed 001 through the running kernel's own calls beside ours. The
// row with RWF_NOWAIT has its share of EAGAIN, the rows of the model's rings say which way their
// requests went, and the page has both.
func TestCompareSeedLinux(t *testing.T) {
	need.Long(t)
	dir := t.TempDir()
	page := filepath.Join(t.TempDir(), "page.html")
	var out, errw strings.Builder
	args := []string{"compare", "001", "--linux", dir, "--size", "1M", "--rounds", "1", "--runtime-seconds", "0.01", "--set", "ramp_time=0", "--json", "--out", page}
	if code := Main(args, strings.NewReader(""), &out, &errw); code != 0 {
		t.Fatalf("exit code %d: %s", code, errw.String())
	}
	var r struct {
		Rows []struct {
			Policy, Content, Check string
			IOPS                   float64
			Again                  *float64 `json:"eagain_share"`
			Ring                   *struct{ Submitted, Inline, Punted, Workers int64 }
		}
	}
	if err := json.Unmarshal([]byte(out.String()), &r); err != nil {
		t.Fatal(err)
	}
	names := ""
	for _, row := range r.Rows {
		names += " " + row.Policy
		ours := !strings.HasPrefix(row.Policy, "linux")
		if row.Content != "ok" || row.IOPS == 0 || (row.Check == "clean") != ours {
			t.Errorf("%+v", row)
		}
		if (row.Again != nil) != (row.Policy == "linux-nowait") {
			t.Errorf("%s: EAGAIN %v", row.Policy, row.Again)
		}
		ring := strings.HasPrefix(row.Policy, "io_uring") || strings.HasPrefix(row.Policy, "before")
		if (row.Ring != nil) != ring {
			t.Errorf("%s: ring %+v", row.Policy, row.Ring)
		} else if ring && (row.Ring.Submitted == 0 || strings.HasPrefix(row.Policy, "before") && (row.Ring.Inline > 0 || row.Ring.Workers == 0)) {
			t.Errorf("%s: ring %+v", row.Policy, *row.Ring)
		}
	}
	if want := " psync libaio libaio-4 before before-4 io_uring io_uring-4 linux-psync linux-nowait linux-libaio linux-uring"; names != want {
		t.Errorf("rows, have%s want%s", names, want)
	}
	html, err := os.ReadFile(page)
	if err != nil || strings.Count(string(html), "<h3>Which way the requests of rings went</h3>") != 1 || !strings.Contains(string(html), `<th scope="row">linux-nowait</th><td></td>`) {
		t.Errorf("%v: the page lacks the rings", err)
	}
	if l, err := os.ReadDir(dir); err != nil || len(l) != 0 {
		t.Errorf("%v: %d files are left", err, len(l))
	}
}

// TestInterruptLinux: SIGINT while a comparison has a file in the folder of --linux. The table of
// what was done is printed, and the file is gone.
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
	wantExit(t, <-ended, app.ExitInterrupted)
	if l, _ := os.ReadDir(dir); len(l) != 0 {
		t.Errorf("%d files are left", len(l))
	}
	if nothing := out.Len() == 0 && strings.Contains(errw.String(), "there is no result"); !nothing && !strings.Contains(out.String(), "job seed-002") {
		t.Errorf("no table:\n%s%s", out.String(), errw.String())
	}
}

// TestCompareFsyncLinux: the job of seed 003 through the running kernel's own calls beside ours:
// each writer has a file of its own there as well, and what it wrote is read back.
func TestCompareFsyncLinux(t *testing.T) {
	need.Long(t)
	dir := t.TempDir()
	var out, errw strings.Builder
	args := []string{"compare", "003", "--linux", dir, "--size", "1M", "--rounds", "1", "--runtime-seconds", "0.05", "--json"}
	if code := Main(args, strings.NewReader(""), &out, &errw); code != 0 {
		t.Fatalf("exit code %d: %s", code, errw.String())
	}
	var r struct {
		Rows []struct {
			Policy, Content, Check string
			IOPS                   float64
		}
	}
	if err := json.Unmarshal([]byte(out.String()), &r); err != nil {
		t.Fatal(err)
	}
	names := ""
	for _, row := range r.Rows {
		names += " " + row.Policy
		if row.Content != "ok" || row.IOPS == 0 || (row.Check == "clean") != (row.Policy != "linux") {
			t.Errorf("%+v", row)
		}
	}
	if want := " fsync-commit fsync-5.17 fsync-5.18 linux"; names != want {
		t.Errorf("rows, have%s want%s", names, want)
	}
	if l, err := os.ReadDir(dir); err != nil || len(l) != 0 {
		t.Errorf("%v: %d files are left", err, len(l))
	}
	// Past the page cache as well: seeds 000 and 004.
	for _, seed := range []string{"000", "004"} {
		out.Reset()
		args := []string{"compare", seed, "--linux", dir, "--size", "4M", "--rounds", "1", "--runtime-seconds", "0.02", "--set", "iodepth=2", "--json"}
		code := Main(args, strings.NewReader(""), &out, &errw)
		if err := json.Unmarshal([]byte(out.String()), &r); err != nil || code != 0 {
			t.Fatalf("seed %s: exit code %d, %v: %s", seed, code, err, errw.String())
		}
		if last := r.Rows[len(r.Rows)-1]; last.Policy != "linux" || last.Content != "ok" || last.IOPS == 0 {
			t.Errorf("seed %s: the last row is %+v", seed, last)
		}
	}
}
