package cli

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"btrlab/internal/cli/app"
	"btrlab/internal/format"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
	"btrlab/internal/testing/need"
)

// program gives a path that runs this test binary as btrlab.
func program(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "btrlab")
	if err := os.Symlink(self, link); err != nil {
		t.Fatal(err)
	}
	return link
}

func verb(t *testing.T, want int, args ...string) string {
	t.Helper()
	var out, errw bytes.Buffer
	if code := Main(args, strings.NewReader(""), &out, &errw); code != want {
		t.Fatalf("btrlab %s: exit code %d, want %d; %s%s", strings.Join(args, " "), code, want, out.String(), errw.String())
	}
	return out.String()
}

func wantExit(t *testing.T, err error, want int) {
	t.Helper()
	var exit *exec.ExitError
	code := 0
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	if code != want {
		t.Errorf("exit code %d, want %d", code, want)
	}
}

// TestInterruptPut: a signal while put waits for more input. The half of the file is taken away,
// what was there stays, and the image is clean; when the terminal is closed as well, of which the
// shell tells once more.
func TestInterruptPut(t *testing.T) {
	// A program inherits what is ignored: under nohup, put would not hear of the terminal's end.
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGHUP)
	defer signal.Stop(heard)
	for _, signals := range [][]os.Signal{{os.Interrupt}, {syscall.SIGTERM}, {syscall.SIGHUP, syscall.SIGHUP}} {
		t.Run(signals[0].String(), func(t *testing.T) {
			img := filepath.Join(t.TempDir(), "a.img")
			verb(t, 0, "mkfs", "-q", "--size", "256M", img)
			verb(t, 0, "mkdir", img+":/before")
			cmd := exec.Command(program(t), "put", "-", img+":/half")
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			var errw bytes.Buffer
			cmd.Stderr = &errw
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			// More than a pipe holds: when this returns put has begun.
			if _, err := in.Write(make([]byte, 4<<20)); err != nil {
				t.Fatal(err)
			}
			for _, s := range signals {
				if err := cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
					t.Fatal(err)
				}
			}
			wantExit(t, cmd.Wait(), app.ExitInterrupted)
			if !strings.Contains(errw.String(), "btrlab: interrupted") {
				t.Errorf("standard error %q, want a word about the interrupt", errw.String())
			}
			verb(t, 0, "check", img)
			if got := verb(t, 0, "ls", img); got != "before\n" {
				t.Errorf("ls shows %q, want before alone", got)
			}
		})
	}
}

// TestNohup: under nohup the end of the terminal ends nothing.
func TestNohup(t *testing.T) {
	img := filepath.Join(t.TempDir(), "a.img")
	verb(t, 0, "mkfs", "-q", "--size", "256M", img)
	cmd := exec.Command("/bin/sh", "-c", `trap "" HUP; exec "$@"`, "sh", program(t), "put", "-", img+":/whole")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write(make([]byte, 4<<20)); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write(make([]byte, 4<<20)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
		t.Fatal(err)
	}
	if got := len(verb(t, 0, "cat", img+":/whole")); got != 8<<20 {
		t.Errorf("the file has %d bytes, want all", got)
	}
}

// TestInterruptBench: SIGINT while jobs run ends them, prints what was measured, and the image is
// clean.
func TestInterruptBench(t *testing.T) {
	dir := t.TempDir()
	img, job := filepath.Join(dir, "a.img"), filepath.Join(dir, "job.fio")
	verb(t, 0, "mkfs", "-q", "--size", "256M", img)
	text := "[w]\nioengine=psync\nrw=randwrite\nbs=4k\nsize=16M\nnorandommap\ntime_based\nruntime=600\nnumjobs=4\n"
	if err := os.WriteFile(job, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program(t), "bench", job, "--image", img, "--pprof", "localhost:0")
	var out bytes.Buffer
	cmd.Stdout = &out
	errPipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(errPipe)
	line, err := r.ReadString('\n') // it says where the profiles are, and starts
	if err != nil || !strings.Contains(line, "profiles on http://") {
		t.Fatalf("first line %q, %v", line, err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	wantExit(t, cmd.Wait(), app.ExitInterrupted)
	if !strings.Contains(string(rest), "btrlab: interrupted") {
		t.Errorf("standard error %q, want a word about the interrupt", rest)
	}
	verb(t, 0, "check", img)
}

// TestKillBench: a process that is killed while it writes and commits leaves the last commit, and
// that is clean.
func TestKillBench(t *testing.T) {
	dir := t.TempDir()
	img, job := filepath.Join(dir, "a.img"), filepath.Join(dir, "job.fio")
	verb(t, 0, "mkfs", "-q", "--size", "256M", img)
	text := "[w]\nioengine=psync\nrw=randwrite\nbs=4k\nsize=8M\nnorandommap\ntime_based\nruntime=600\nnumjobs=4\nfsync=8\n"
	if err := os.WriteFile(job, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	generation := func() uint64 {
		f, err := os.Open(img)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var b [8]byte
		if _, err := f.ReadAt(b[:], format.SuperOffset+0x48); err != nil {
			t.Fatal(err)
		}
		return binary.LittleEndian.Uint64(b[:])
	}
	for round := range 3 {
		from := generation()
		// each fsync is a generation
		cmd := exec.Command(program(t), "bench", job, "--image", img, "--policy", "fsync-commit")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for generation() < from+20+uint64(round) {
			runtime.Gosched()
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		cmd.Wait() // its error is the kill
		verb(t, 0, "check", img)
	}
}

// TestInterruptExplore: SIGINT while a search runs ends it, and what it has come to is printed.
func TestInterruptExplore(t *testing.T) {
	// The first policy is searched in no time and printed; the second would take minutes.
	cmd := exec.Command(program(t), "explore", "enospc", "--policy", "locked,modern", "--preemptions", "-1", "--json")
	var errw bytes.Buffer
	cmd.Stderr = &errw
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(out)
	var first, second scenario.Result
	if err := d.Decode(&first); err != nil || first.Verdict != explore.Exhausted {
		t.Fatalf("%v %+v", err, first)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := d.Decode(&second); err != nil || second.Verdict != explore.Bounded || !second.Stopped || !strings.Contains(second.Bound.String(), "stopped") {
		t.Errorf("%v %+v", err, second)
	}
	wantExit(t, cmd.Wait(), app.ExitInterrupted)
	if want := "btrlab: interrupted; the result is what was searched until then\n"; errw.String() != want {
		t.Errorf("standard error %q, want %q", errw.String(), want)
	}
}

// Every verb that searches or simulates ends soon once SIGINT has come, with exit code 130,
// whatever the method.
func TestInterrupted(t *testing.T) {
	for _, args := range []string{
		"explore truncate-race", "explore truncate-race --json", "explore truncate-race --method dpor", "explore truncate-race --method state",
		"explore truncate-race --method random", "explore truncate-race --jobs 2", "explore --all", "explore --all --json", "museum all", "museum 23 --method portfolio",
		"reproduce 002 --size 1M --runtime-seconds 1", "reproduce 002 --size 1M --runtime-seconds 1 --calibrate 2",
	} {
		var out bytes.Buffer
		a := newCmdline(strings.NewReader(""), &out, io.Discard)
		a.Stop.Store(true)
		err := a.run(strings.Fields(args))
		want := app.ErrStopped
		if strings.HasPrefix(args, "reproduce") {
			want = app.ErrNothing
		}
		if !errors.Is(err, want) || want == app.ErrStopped && !strings.Contains(out.String(), "stopped") && !strings.Contains(out.String(), "kept?1") {
			t.Errorf("%s: %v, want %v\n%s", args, err, want, out.String())
		}
	}
}

// TestInterruptGrade: SIGTERM ended no grading whose type checker was at types that double: it ran
// in the process itself. The first entry of the folder for temporary files is the sign that it has
// begun.
func TestInterruptGrade(t *testing.T) {
	dir, tmp := t.TempDir(), t.TempDir()
	var b strings.Builder
	b.WriteString("package unlocked\ntype s0 struct{ a, b uint64 }\n")
	for i := range 40 {
		fmt.Fprintf(&b, "type s%d struct{ a, b s%d }\n", i+1, i)
	}
	if err := os.WriteFile(filepath.Join(dir, "unlock.go"), []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", tmp)
	var out bytes.Buffer
	a := newCmdline(strings.NewReader(""), &out, io.Discard)
	done := make(chan error)
	go func() { done <- a.run([]string{"lab", "grade", "3", "--dir", dir}) }()
	for begun := false; !begun; {
		l, err := filepath.Glob(filepath.Join(tmp, "btrlab-*"))
		begun = err != nil || len(l) > 0
	}
	close(a.Stopped)
	if err := <-done; !errors.Is(err, app.ErrNothing) || out.Len() > 0 {
		t.Errorf("%v, want %v\n%s", err, app.ErrNothing, out.String())
	}
}

// TestInterruptQueue: SIGINT with 256 requests in flight, direct ones with the device and buffered
// ones with the workers of a ring. The job takes all their ends, prints what was measured, and the
// image is clean.
func TestInterruptQueue(t *testing.T) {
	need.Long(t)
	// A direct write takes so long that the job waits nearly always, however slow the machine is.
	// The file is laid out before, as for a job that reads, and no block is written twice in a
	// pass: else the job would wait in submitting.
	for _, c := range []struct{ engine, waits, model string }{
		{"ioengine=io_uring\ndirect=1", "uring.(*Ring).Wait", "nvme:write=50ms"},
		{"ioengine=io_uring\nforce_async=1", "uring.(*Ring).Wait", "nvme:write=1ms"},
		{"ioengine=libaio\ndirect=1", "aio.(*Context).collect", "nvme:write=50ms"},
	} {
		dir := t.TempDir()
		img, job := filepath.Join(dir, "a.img"), filepath.Join(dir, "job.fio")
		// A smaller image has not the room for metadata that 256 requests reserve.
		verb(t, 0, "mkfs", "-q", "--size", "8G", img)
		text := "[w]\nrw=randrw\nrwmixread=0\nbs=4k\nsize=16M\ntime_based\nruntime=600\niodepth=256\n" + c.engine + "\n"
		if err := os.WriteFile(job, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(program(t), "bench", job, "--image", img, "--nocow", "--json", "--device-model", c.model, "--pprof", "localhost:0")
		var out bytes.Buffer
		cmd.Stdout = &out
		errPipe, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(errPipe)
		line, err := r.ReadString('\n')
		_, url, ok := strings.Cut(strings.TrimSpace(line), "profiles on ")
		if err != nil || !ok {
			t.Fatalf("first line %q, %v", line, err)
		}
		// The job waits for a completion only when all 256 are in flight.
		for stacks := ""; !strings.Contains(stacks, c.waits); {
			resp, err := http.Get(url + "goroutine?debug=2")
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			stacks = string(b)
		}
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		rest, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		wantExit(t, cmd.Wait(), app.ExitInterrupted)
		if !strings.Contains(string(rest), "btrlab: interrupted") {
			t.Errorf("%q: standard error %q, want a word about the interrupt", c.engine, rest)
		}
		var res struct {
			Jobs []struct {
				Error int
				Depth map[string]float64 `json:"iodepth_level"`
				Write struct {
					IOs  uint64             `json:"total_ios"`
					Slat struct{ N uint64 } `json:"slat_ns"`
					Lat  struct{ N uint64 } `json:"lat_ns"`
				}
			}
		}
		if err := json.Unmarshal(out.Bytes(), &res); err != nil {
			t.Fatalf("%v: %s", err, out.String())
		}
		// Each submitted request has an end.
		if j := res.Jobs[0]; j.Error != 0 || j.Depth[">=64"] == 0 || j.Write.IOs < 256 || j.Write.Slat.N != j.Write.IOs || j.Write.Lat.N != j.Write.IOs {
			t.Errorf("%q: %+v, want 256 writes or more, each submitted and ended", c.engine, j)
		}
		verb(t, 0, "check", img)
	}
}
