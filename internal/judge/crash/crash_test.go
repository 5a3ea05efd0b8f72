package crash_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/fs"
	"btrlab/internal/judge/crash"
	"btrlab/internal/policy"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	m.Run()
}

// image is a fresh image.
func image(tb testing.TB, t *sched.Task) blockdev.Device {
	tb.Helper()
	dev := blockdev.NewMemory(256 << 20)
	if err := mkfs.Make(t, dev, mkfs.Options{}); err != nil {
		tb.Fatal(err)
	}
	return dev
}

// workload runs lines of a small language: the operations of these tests.
type workload struct {
	tb testing.TB
	t  *sched.Task
	r  *crash.Recorder
}

func record(tb testing.TB, o crash.Options, lines ...string) (*sched.Task, *crash.Recording) {
	tb.Helper()
	t := sched.NewTask(tb.Name())
	r, err := crash.NewRecorder(t, []blockdev.Device{image(tb, t)}, o)
	if err != nil {
		tb.Fatal(err)
	}
	w := &workload{tb, t, r}
	for _, l := range lines {
		w.do(l)
	}
	rec, err := r.End(t)
	if err != nil {
		tb.Fatal(err)
	}
	return t, rec
}

// do runs one line. A verb with a question mark says that it syncs, and does not.
func (w *workload) do(line string) {
	w.tb.Helper()
	f := strings.Fields(line)
	num := func(i int) (n int) { fmt.Sscan(f[i], &n); return n }
	op := crash.Op{Text: line}
	run := func(do func() error) {
		w.tb.Helper()
		if err := w.r.Do(w.t, op, do); err != nil {
			w.tb.Fatalf("%s: %v", line, err)
		}
	}
	file := func(flags fs.OpenFlags, do func(x *fs.File) error) {
		run(func() error {
			x, err := w.r.FS.OpenFile(w.t, f[1], fs.O_RDWR|flags, 0o644)
			if err != nil {
				return err
			}
			defer x.Close(w.t)
			return do(x)
		})
	}
	switch f[0] {
	case "write": // PATH OFFSET LENGTH BYTE
		file(fs.O_CREAT, func(x *fs.File) error {
			_, err := x.WriteAt(w.t, []byte(strings.Repeat(f[4], num(3))), int64(num(2)))
			return err
		})
	case "truncate":
		file(0, func(x *fs.File) error { return x.Truncate(w.t, int64(num(2))) })
	case "nocow":
		file(fs.O_CREAT, func(x *fs.File) error { return x.SetFlags(w.t, 2) })
	case "mkdir":
		run(func() error { return w.r.FS.Mkdir(w.t, f[1], 0o755) })
	case "mv":
		run(func() error { return w.r.FS.Rename(w.t, f[1], f[2]) })
	case "ln":
		run(func() error { return w.r.FS.Link(w.t, f[1], f[2]) })
	case "rm":
		run(func() error { return w.r.FS.Unlink(w.t, f[1]) })
	case "rmxattr":
		run(func() error { return w.r.FS.Removexattr(w.t, f[1], f[2]) })
	case "setxattr":
		run(func() error { return w.r.FS.Setxattr(w.t, f[1], f[2], []byte(f[3])) })
	case "chmod":
		run(func() error { return w.r.FS.Chmod(w.t, f[1], uint32(num(2))) })
	case "chown":
		run(func() error { return w.r.FS.Chown(w.t, f[1], uint32(num(2)), uint32(num(3))) })
	case "touch":
		file(fs.O_CREAT, func(*fs.File) error { return nil })
	case "utimes":
		run(func() error {
			return w.r.FS.Utimes(w.t, f[1], time.Unix(int64(num(2)), 0), time.Unix(int64(num(3)), 0))
		})
	case "chattr":
		run(func() error { return w.r.FS.SetFlags(w.t, f[1], uint64(num(2))) })
	case "sync":
		op.Promise = crash.All
		run(func() error { return w.r.FS.Sync(w.t) })
	case "sync?":
		op.Promise = crash.All
		run(func() error { return nil })
	case "fsync", "fsync?", "fdatasync", "fdatasync?":
		op.Promise, op.Path = crash.PromiseOf(strings.TrimSuffix(f[0], "?")), f[1]
		run(func() error {
			if strings.HasSuffix(f[0], "?") {
				return nil
			}
			return crash.Sync(w.t, w.r.FS, f[1])
		})
	default:
		w.tb.Fatalf("no such operation: %s", line)
	}
}

// busy is a workload with everything in it.
var busy = []string{
	"mkdir /d", "write /d/a 0 50000 a", "write /small 0 700 s", "nocow /n", "write /n 0 30000 n", "sync",
	"write /d/a 20000 9000 b", "fsync /d/a", "write /n 5000 10000 m", "write /small 300 500 t", "mv /small /d/small", "fsync /d/small",
	"write /new 0 20000 c", "mv /new /d/a", "fsync /d/a", "ln /d/a /second", "setxattr /n user.x y", "truncate /d/a 4000", "fsync /d", "rm /second",
	"write /last 8192 8192 l", "sync",
}

func find(tb testing.TB, t *sched.Task, rec *crash.Recording, c crash.Choice) (*crash.Counterexample, int) {
	tb.Helper()
	x, n, err := rec.Search(t, rec.States(c), 2, nil, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return x, n
}

// TestCleanWorkload: whatever of the writes in flight a power cut takes, nothing that was promised
// is lost.
func TestCleanWorkload(t *testing.T) {
	tk, rec := record(t, crash.Options{}, busy...)
	x, n := find(t, tk, rec, crash.Choice{PerFlush: 24, Seed: 3})
	if x != nil {
		t.Fatalf("state %s: %s\n%s", x.State, x.Loss, strings.Join(rec.Timeline(x.State), "\n"))
	}
	if w, f := rec.Writes(); n < 100 || f < 8 {
		t.Errorf("%d states of %d writes and %d flushes, want 100", n, w, f)
	}
}

// TestWrongOrders: each wrong order is found, and shrunk to a few lost writes, which the timeline
// names.
func TestWrongOrders(t *testing.T) {
	for _, name := range crash.Wrongs() {
		t.Run(name, func(t *testing.T) {
			tk, rec := record(t, crash.Options{Wrong: name}, busy...)
			x, _ := find(t, tk, rec, crash.Choice{PerFlush: 24, Seed: 3})
			if x == nil {
				t.Fatal("nothing is lost")
			}
			before := len(x.State.Lost)
			x, err := rec.Shrink(tk, x)
			if err != nil {
				t.Fatal(err)
			}
			if n := len(x.State.Lost); n > before || n > 12 {
				t.Errorf("%d writes are lost after %d before, want 12 at most: %s", n, before, x.State)
			}
			l := strings.Join(rec.Timeline(x.State), "\n")
			if len(x.State.Lost) > 0 && !strings.Contains(l, "LOST") || !strings.Contains(l, "power off at ") {
				t.Errorf("%s: %s\n%s", x.State, x.Loss, l)
			}
			for _, row := range strings.Split(l, "\n") {
				if len(row) > 80 {
					t.Errorf("%d columns: %s", len(row), row)
				}
			}
			// What is printed finds it again.
			s, err := crash.ParseState(x.State.String())
			if err != nil || rec.Has(s) != nil {
				t.Fatal(s, err, rec.Has(s))
			}
			if loss, err := rec.Judge(tk, s); err != nil || loss == nil || loss.Text != x.Loss.Text {
				t.Errorf("again: %v, %v, want %v", loss, err, x.Loss)
			}
		})
	}
}

// TestPromises: an fsync or a sync that promises and does nothing is found by what it does not
// keep.
func TestPromises(t *testing.T) {
	for _, c := range []struct{ lines, rule string }{
		{"write /f 0 5000 a; fsync? /f", "name"},
		{"write /f 0 5000 a; sync; write /f 0 5000 b; fsync? /f", "data"},
		{"write /f 0 5000 a; sync; write /f 0 500 b; sync?", "data"},
		{"write /f 0 5000 a; sync; write /f 5000 5000 b; fsync? /f", "size"},
		{"write /f 0 5000 a; sync; truncate /f 100; fsync? /f", "size"},
		{"write /f 0 5000 a; sync; mv /f /g; fsync? /g", "name"},
		{"write /f 0 5000 a; sync; ln /f /g; fsync? /f", "name"},
		{"write /f 0 5000 a; sync; rm /f; sync?", "name"},
		{"write /f 0 5000 a; sync; setxattr /f user.a b; fsync? /f", "attribute"},
		{"mkdir /d; sync; write /d/f 0 10 a; fsync? /d", "name"},
		{"write /f 0 5000 a; sync; write /f 0 5000 b; fdatasync? /f", "data"},
		{"write /f 0 5000 a; sync; write /f 5000 5000 b; fdatasync? /f", "size"},
		{"touch /f; sync; chmod /f 384; fsync? /f", "mode"},
		{"touch /f; sync; chmod /f 384; sync?", "mode"},
		{"mkdir /d; sync; chmod /d 448; fsync? /d", "mode"},
		{"touch /f; sync; chown /f 5 6; fsync? /f", "owner"},
		{"touch /f; sync; chattr /f 256; fsync? /f", "flags"},
		{"touch /f; sync; utimes /f 7 8; fsync? /f", "time"},
		{"mkdir /d; sync; touch /d/f; fsync? /d", "name"},
		// it promises what is needed to read the file
		{"touch /f; sync; chmod /f 384; fdatasync? /f", ""},
		{"touch /f; sync; utimes /f 7 8; fdatasync? /f", ""},
		{"mkdir /d; write /d/f 0 10 a; sync?", "name"},
	} {
		t.Run(c.lines, func(t *testing.T) {
			tk, rec := record(t, crash.Options{}, strings.Split(c.lines, "; ")...)
			x, _ := find(t, tk, rec, crash.Choice{})
			if rule := ruleOf(x); rule != c.rule {
				t.Errorf("have %v, want a broken promise of rule %s", x, c.rule)
			}
		})
		// The one that syncs keeps it.
		tk, rec := record(t, crash.Options{}, strings.Split(strings.ReplaceAll(c.lines, "?", ""), "; ")...)
		if x, _ := find(t, tk, rec, crash.Choice{PerFlush: 4}); x != nil {
			t.Errorf("%s: %v", strings.ReplaceAll(c.lines, "?", ""), x.Loss)
		}
	}
}

func ruleOf(x *crash.Counterexample) string {
	if x == nil {
		return ""
	}
	return x.Loss.Rule
}

// TestReplayKeepsAttributes: a file comes back with the mode, owner, flags and times that it had at
// the fsync, whether the last commit has the file or not, and a directory as well; so does a file
// that is logged for a name of it only, or that another name pushes into the log. For two years of
// this program the judge looked at none of them.
func TestReplayKeepsAttributes(t *testing.T) {
	const change = "; chmod /f 384; chown /f 5 6; chattr /f 256; utimes /f 7 8"
	for _, lines := range []string{
		"touch /f" + change + "; fsync /f",
		"touch /f; sync" + change + "; fsync /f",
		"touch /f; fsync /f" + change + "; fsync /f",
		"touch /f" + change + "; fsync /f; chmod /f 256; chown /f 1 2; utimes /f 3 4; fsync /f",
		"touch /f; sync" + change + "; fsync /f; chmod /f 256; ln /f /g; fsync /g",
		"mkdir /f; sync" + change + "; fsync /f",
		"mkdir /f; sync; touch /f/x" + change + "; fsync /f",
		"touch /f; sync" + change + "; fsync /f; mv /f /g; touch /f; fsync /f",
		"touch /f; sync" + change + "; fdatasync /f",
	} {
		for _, policy := range append(policy.FsyncNames(), "modern") {
			tk, rec := record(t, crash.Options{FS: fs.Options{Policy: parsed(policy)}}, strings.Split(lines, "; ")...)
			if x, _ := find(t, tk, rec, crash.Choice{}); x != nil {
				t.Errorf("%s under %s: state %s: %s", lines, policy, x.State, x.Loss)
			}
		}
	}
}

func parsed(name string) *policy.Policy { return policy.MustParse(name) }

// TestReplayFaults: a mistake of a log or of its replay breaks the promise that it is about.
func TestReplayFaults(t *testing.T) {
	for _, c := range []struct{ wrong, lines, rule, text string }{
		{"NO_SUMS", "write /f 0 4096 a; fsync /f", "check", "the image is damaged: log.csum"},
		{"TAKEN_NAMES+WRONG_LOG_KEEP_SIZE", "mkdir /A; touch /A/foo; ln /A/foo /A/bar; touch /other; sync; rm /A/bar; ln /other /A/bar; fsync /other", "check", "damaged after it was opened"},
		{"UNPINNED", "write /f 0 4096 a; fsync /f; touch /other; sync; write /f 0 4096 b; fsync /f; ln /f /g; fsync /other", "open", "replay log tree at"},
		{"OLD_NUMBERS", "touch /foo; fsync /foo; write /foo 0 4096 a; fsync /foo", "use", "file exists"},
		{"LOST_NAMES", "mkdir /A; touch /A/foo; ln /A/foo /A/bar; sync; rm /A/bar; fsync /A/foo", "names", "has 2 names, want 1"},
		{"KEEP_XATTRS", "touch /f; setxattr /f user.a x; sync; rmxattr /f user.a; fsync /f", "attribute", ""},
	} {
		t.Run(c.wrong, func(t *testing.T) {
			tk, rec := record(t, crash.Options{FS: fs.Options{Policy: policy.MustParse("modern+WRONG_LOG_" + c.wrong)}}, strings.Split(c.lines, "; ")...)
			x, _ := find(t, tk, rec, crash.Choice{})
			if ruleOf(x) != c.rule || !strings.Contains(x.Loss.Text, c.text) {
				t.Errorf("have %v, want rule %s with %q", x, c.rule, c.text)
			}
		})
	}
}

// TestPowerGoesAgain: a commit after the crash that sends no flush before its superblock is found,
// though everything that the workload wrote is there: by a replay, and by the end of what had lost
// its last name.
func TestPowerGoesAgain(t *testing.T) {
	tk, rec := record(t, crash.Options{Wrong: "no-flush", FS: fs.Options{Policy: policy.MustParse("modern")}}, "write /f 0 4096 a", "fsync /f")
	loss, err := rec.Judge(tk, crash.State{Flush: 1})
	if err != nil || loss == nil || loss.Rule != "again" || !strings.Contains(loss.Text, "after the next superblock: check: ") {
		t.Errorf("have %v, %v, want a loss after a second cut", loss, err)
	}
	tk, rec = record(t, crash.Options{FS: fs.Options{Policy: policy.MustParse("modern")}}, "write /f 0 4096 a", "fsync /f")
	if loss, err := rec.Judge(tk, crash.State{Flush: 1}); err != nil || loss != nil {
		t.Errorf("with flushes: %v, %v", loss, err)
	}
}

// TestDeviceFails: what cannot be read is told, whoever reads it first: check, the open or the
// judge.
func TestDeviceFails(t *testing.T) {
	tk := sched.NewTask(t.Name())
	base := dm.NewFlakey(image(t, tk))
	f, err := fs.Open(tk, []blockdev.Device{base}, fs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	x, err := f.Create(tk, "/f", 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.WriteAt(tk, make([]byte, 100000), 0); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(x.Close(tk), f.Close(tk)); err != nil {
		t.Fatal(err)
	}
	r, err := crash.NewRecorder(tk, []blockdev.Device{base}, crash.Options{FS: fs.Options{Policy: parsed("modern")}})
	if err != nil {
		t.Fatal(err)
	}
	w := &workload{t, tk, r}
	w.do("write /g 0 5000 g")
	w.do("fsync /g")
	rec, err := r.End(tk)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for n := int64(1); ; n++ {
		before := base.Count(blockdev.OpRead)
		base.Set(dm.Fault{Op: blockdev.OpRead, Nth: before + n, On: true})
		loss, err := rec.Judge(tk, crash.State{Flush: 1})
		base.Set()
		if err != nil {
			t.Fatal(err)
		}
		if loss != nil {
			seen[loss.Rule] = true
		} else if base.Count(blockdev.OpRead) < before+n {
			break
		}
	}
	for _, rule := range []string{"check", "open", "read"} {
		if !seen[rule] {
			t.Errorf("no loss of rule %s", rule)
		}
	}
}

// TestDevice: a state has what no write lost, and of a torn write the part that it says.
func TestDevice(t *testing.T) {
	tk, rec := record(t, crash.Options{}, "write /f 0 8192 a", "sync")
	shown := map[string]string{}
	for _, text := range []string{"1", "1:1", "1:1[0-4096]", "1:1[4096-8192]"} {
		s, err := crash.ParseState(text)
		if err != nil || rec.Has(s) != nil {
			t.Fatal(err, rec.Has(s))
		}
		dev, err := rec.Device(tk, s)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 128<<20)
		if err := blockdev.Read(tk, dev, b, 0); err != nil {
			t.Fatal(err)
		}
		n := strings.Count(string(b), strings.Repeat("a", 4096))
		shown[text] = fmt.Sprint(n)
	}
	if have, want := fmt.Sprint(shown), "map[1:2 1:1:0 1:1[0-4096]:1 1:1[4096-8192]:1]"; have != want {
		t.Errorf("blocks of the file: have %s want %s", have, want)
	}
}

// TestStateText: what is printed is read back, and what is no state is refused.
func TestStateText(t *testing.T) {
	for _, text := range []string{"1", "12:3", "5:1,2,9", "5:2,7[0-4096]", "5:7[4096-16384]"} {
		if s, err := crash.ParseState(text); err != nil || s.String() != text {
			t.Errorf("%s is read as %s, %v", text, s, err)
		}
	}
	for _, text := range []string{"", "0", "x", "1:", "1:0", "1:2[3", "1:2[3]", "1:2[9-3]", "1:-2"} {
		if s, err := crash.ParseState(text); err == nil || !strings.Contains(err.Error(), "bad crash state, have ") {
			t.Errorf("%q is read as %s, %v", text, s, err)
		}
	}
	_, rec := record(t, crash.Options{}, "write /f 0 5000 a", "sync")
	for _, text := range []string{"1000", "1:1000", "1:1[0-99999999]"} {
		if s, err := crash.ParseState(text); err != nil || rec.Has(s) == nil {
			t.Errorf("%s is in the recording: %v", text, err)
		}
	}
	if _, err := crash.NewRecorder(sched.NewTask("x"), []blockdev.Device{blockdev.NewMemory(1 << 20)}, crash.Options{Wrong: "none"}); err == nil || !strings.Contains(err.Error(), "want one of late-data, no-flush, super-first") {
		t.Errorf("a wrong order that is none: %v", err)
	}
}

// TestLogHasAttributes: an attribute that comes after the file was logged is in its next log.
func TestLogHasAttributes(t *testing.T) {
	tk, rec := record(t, crash.Options{FS: fs.Options{Policy: policy.MustParse("locked")}},
		"write /f 0 100 a", "fsync /f", "setxattr /f user.a value", "fsync /f")
	if x, _ := find(t, tk, rec, crash.Choice{}); x != nil {
		t.Errorf("state %s: %s", x.State, x.Loss)
	}
}

// TestDirectoryAbove: an fsync of a file does not promise the new name of a directory above it, a
// log need not have that. It promises the file.
func TestDirectoryAbove(t *testing.T) {
	for _, name := range []string{"locked!FSYNC_LOG", "locked"} {
		tk, rec := record(t, crash.Options{FS: fs.Options{Policy: policy.MustParse(name)}},
			"mkdir /a", "write /a/f 0 100 a", "ln /a/f /f", "sync", "mv /a /b", "write /f 50 100 b", "fsync /f")
		if x, _ := find(t, tk, rec, crash.Choice{}); x != nil {
			t.Errorf("%s: state %s: %s", name, x.State, x.Loss)
		}
	}
}

// TestFiles: tasks write files at once, and each is held against its own writes and fsyncs; an
// fsync that does nothing is found.
func TestFiles(t *testing.T) {
	for _, lie := range []bool{false, true} {
		tk := sched.NewTask(t.Name())
		r, err := crash.NewRecorder(tk, []blockdev.Device{image(t, tk)}, crash.Options{})
		if err != nil {
			t.Fatal(err)
		}
		err = r.Do(tk, crash.Op{Text: "three writers", Loose: true}, func() error {
			var tasks []*sched.Task
			for i := range 3 {
				x, err := r.FS.Create(tk, fmt.Sprintf("/f%d", i), 0o644)
				if err != nil {
					return err
				}
				f := r.File(tk, x)
				tasks = append(tasks, tk.Go("writer", func(tk *sched.Task) {
					defer x.Close(tk)
					for k := range 8 {
						p := []byte(strings.Repeat(string(rune('a'+k)), 3000+500*k))
						if _, err := f.WriteAt(tk, p, int64(k%3)*2000); err != nil {
							t.Error(err)
						}
						if k%2 == 1 {
							sync := f.Fsync
							if lie && i == 1 && k == 5 {
								sync = f.Lie
							}
							if err := sync(tk); err != nil {
								t.Error(err)
							}
						}
					}
				}))
			}
			for _, x := range tasks {
				tk.Join(x)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		rec, err := r.End(tk)
		if err != nil {
			t.Fatal(err)
		}
		x, n := find(t, tk, rec, crash.Choice{PerFlush: 8})
		if lie != (x != nil) {
			t.Errorf("an fsync that does nothing: %v, %d states, have %v", lie, n, x)
		}
	}
}

// TestImageUntouched: neither the workload nor a crash state writes the image.
func TestImageUntouched(t *testing.T) {
	tk := sched.NewTask(t.Name())
	dev := image(t, tk).(*blockdev.Memory)
	before := bytesOf(t, tk, dev)
	r, err := crash.NewRecorder(tk, []blockdev.Device{dev}, crash.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := &workload{t, tk, r}
	for _, l := range []string{"write /f 0 50000 a", "fsync /f", "rm /f", "sync"} {
		w.do(l)
	}
	rec, err := r.End(tk)
	if err != nil {
		t.Fatal(err)
	}
	find(t, tk, rec, crash.Choice{PerFlush: 4})
	if bytesOf(t, tk, dev) != before {
		t.Error("the image has changed")
	}
}

func bytesOf(t *testing.T, tk *sched.Task, dev blockdev.Device) string {
	b := make([]byte, 32<<20) // the superblocks, and where small files and trees lie
	if err := blockdev.Read(tk, dev, b, 0); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestBoundedOne: every sequence of one operation, with every choice of what is synced, keeps its
// promise. CrashMonkey calls them seq-1.
func TestBoundedOne(t *testing.T) {
	for _, name := range append(policy.FsyncNames(), "modern") {
		tk := sched.NewTask(t.Name())
		sum, err := crash.RunBounded(tk, image(t, tk), crash.Options{FS: fs.Options{Policy: policy.MustParse(name)}}, crash.Bounds{Length: 1, Jobs: 2})
		if err != nil {
			t.Fatal(err)
		}
		if sum.Found != nil {
			t.Errorf("%s: %s: %s", name, sum.Of.Script(), sum.Found.Loss)
		} else if sum.Sequences < 400 || sum.States < 300 {
			t.Errorf("%s: %d sequences, %d states", name, sum.Sequences, sum.States)
		}
		t.Logf("%s: %d sequences, %d states", name, sum.Sequences, sum.States)
	}
}

// TestBoundedFinds: a device that gets no flush loses what the first sequences promise; three
// operations are sampled by seed.
func TestBoundedFinds(t *testing.T) {
	tk := sched.NewTask(t.Name())
	dev := image(t, tk)
	sum, err := crash.RunBounded(tk, dev, crash.Options{Wrong: "no-flush"}, crash.Bounds{Length: 1, Jobs: 2})
	if err != nil || sum.Found == nil {
		t.Errorf("nothing is lost without flushes: %v, %d states", err, sum.States)
	}
	three := func(seed uint64) (l []string) {
		crash.Bounded(3, 20, seed, func(q *crash.Sequence) bool { l = append(l, q.Script()); return true })
		return l
	}
	if a, b := strings.Join(three(1), "\n"), strings.Join(three(2), "\n"); a == b || a != strings.Join(three(1), "\n") || len(three(1)) != 20 {
		t.Errorf("samples of seed 1:\n%s\nof seed 2:\n%s", a, b)
	}
	n := 0
	crash.Bounded(2, 0, 0, func(*crash.Sequence) bool { n++; return true })
	if n < 200000 {
		t.Errorf("%d sequences of two, want all", n)
	}
	t.Logf("%d sequences of two", n)
}

// A sequence may take away an attribute that it has not set: that is an operation that fails, as
// others do, and no reason to end. Runs of two and three operations ended there.
func TestBoundedNoAttribute(t *testing.T) {
	tk := sched.NewTask(t.Name())
	dev, found := image(t, tk), false
	crash.Bounded(2, 0, 0, func(q *crash.Sequence) bool {
		if found = q.Script() == "touch /foo; sync; removexattr user.a /foo; sync"; !found {
			return true
		}
		if _, rec, _, err := q.Run(tk, dev, crash.Options{}); err != nil || len(rec.Ops) < 4 {
			t.Fatal(err)
		}
		return false
	})
	if !found {
		t.Error("the sequence is none of those of two operations")
	}
}

// TestNamesOfSubvolumes: a snapshot has the names of the subvolumes in its original, which lead
// nowhere there. They are no files, and no reason to end.
func TestNamesOfSubvolumes(t *testing.T) {
	tk := sched.NewTask(t.Name())
	r, err := crash.NewRecorder(tk, []blockdev.Device{image(t, tk)}, crash.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range []struct {
		crash.Op
		do func() error
	}{
		{crash.Op{Text: "subvolume create /s"}, func() error { return r.FS.Subvolume(tk, "/s", 0o755) }},
		{crash.Op{Text: "snapshot / /t"}, func() error { return r.FS.Snapshot(tk, "/", "/t", false) }},
		{crash.Op{Text: "sync", Promise: crash.All}, func() error { return r.FS.Sync(tk) }},
	} {
		if err := r.Do(tk, op.Op, op.do); err != nil {
			t.Fatalf("%s: %v", op.Text, err)
		}
	}
	rec, err := r.End(tk)
	if err != nil {
		t.Fatal(err)
	}
	if x, _ := find(t, tk, rec, crash.Choice{PerFlush: 4}); x != nil {
		t.Errorf("state %s: %s", x.State, x.Loss)
	}
}

// The lines of a sequence, done one after the other, are the operations that Run does.
func TestSequenceLines(t *testing.T) {
	tk := sched.NewTask(t.Name())
	dev := image(t, tk)
	n := 0
	crash.Bounded(1, 0, 0, func(q *crash.Sequence) bool {
		if n++; n%40 != 1 {
			return true
		}
		_, rec, _, err := q.Run(tk, dev, crash.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var have []string
		for _, op := range rec.Ops {
			have = append(have, op.Text)
		}
		if want := q.Lines(); !slices.Equal(have, want) {
			t.Errorf("%s: Run does %q, Lines are %q", q.Script(), have, want)
		}
		return true
	})
	if n < 400 {
		t.Errorf("%d sequences, want 400 at least", n)
	}
}
