package linuxfile

import (
	"os"
	"strings"
	"testing"

	"btrlab/internal/errno"
	"btrlab/internal/hostio"
	"btrlab/internal/measure/experiment"
	"btrlab/internal/measure/fio"
	"btrlab/internal/sched"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

// dir is a directory of the machine's temporary files, whatever file system they are on.
func dir(t *testing.T, nocow bool) (*Dir, *[]string) {
	t.Helper()
	var notes []string
	d, err := Open(t.TempDir(), nocow, func(s string) { notes = append(notes, s) })
	if err != nil {
		t.Skipf("NOT TESTED AGAINST LINUX: %v", err)
	}
	return d, &notes
}

func job(t *testing.T, text string) *fio.JobFile {
	t.Helper()
	jf, err := fio.Parse("job", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return jf
}

// Each engine, buffered and direct, with and without RWF_NOWAIT, writes what it says and reads it
// back: verify=crc32c judges every block. No file is left.
func TestEngines(t *testing.T) {
	for _, engine := range []string{"psync", "sync", "libaio", "io_uring"} {
		for _, direct := range []string{"direct=0", "direct=1"} {
			for _, row := range Rows() {
				t.Run(engine+" "+direct+" "+row, func(t *testing.T) {
					d, _ := dir(t, false)
					var count Count
					k := sched.NewTask("test")
					text := "[j]\nrw=randrw\nsize=1m\niodepth=8\nverify=crc32c\nioengine=" + engine + "\n" + direct
					r, err := fio.Run(k, job(t, text), fio.Options{Open: d.Job(row, &count)})
					if err != nil {
						t.Fatal(err)
					}
					if _, text, no := r.FirstError(); no == int(errno.EPERM) || no == int(errno.EOPNOTSUPP) {
						t.Skipf("NOT TESTED: %s", text)
					} else if no != 0 {
						t.Fatal(text)
					}
					if n, _ := r.Jobs[0].Total(); n < 256 {
						t.Errorf("%d requests of 256", n)
					}
					if again, tried := count.Load(); (tried >= 256) != (row == RowNowait) || again > tried {
						t.Errorf("%d tried, %d again", tried, again)
					}
					if n := entries(t, d.path); n != 1 {
						t.Errorf("%d files while it runs, want 1", n)
					}
					if err := d.Close(); err != nil {
						t.Error(err)
					}
					if n := entries(t, d.path); n != 0 {
						t.Errorf("%d files are left", n)
					}
				})
			}
		}
	}
}

func entries(t *testing.T, path string) int {
	t.Helper()
	l, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	return len(l)
}

// The offsets of a row are those of the job, whatever is under it: the file of one row is, byte for
// byte, that of the other.
func TestSameOffsets(t *testing.T) {
	var have [2]string
	for i, row := range Rows() {
		d, _ := dir(t, false)
		defer d.Close()
		k := sched.NewTask("test")
		if _, err := fio.Run(k, job(t, "[j]\nrw=randwrite\nsize=1m\nnumber_ios=40\nrandseed=7"), fio.Options{Open: d.Job(row, new(Count))}); err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 1<<20)
		if n, err := d.open[0].Transfer(hostio.Read, false, p, 0, 0); n != len(p) || err != nil {
			t.Fatal(n, err)
		}
		for off := 0; off < len(p); off += 4096 {
			have[i] += string("01"[min(1, len(strings.Trim(string(p[off:off+4096]), "\x00")))])
		}
	}
	if have[0] != have[1] || strings.Count(have[0], "1") != 40 {
		t.Errorf("blocks written, have\n%s\n%s", have[0], have[1])
	}
}

// As the rig of an experiment it judges every block, and does not call clean what it cannot check.
func TestRig(t *testing.T) {
	d, notes := dir(t, true)
	jf := job(t, "[j]\nrw=randwrite\nnorandommap\nsize=256k\nnumber_ios=300\nio_size=1g\nnumjobs=2\nioengine=libaio\niodepth=4\ndirect=1")
	r, err := experiment.Compare(sched.NewTask("test"), d, experiment.Options{Job: jf, Policies: Rows(), Rounds: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range r.Rows {
		if row.Content != "ok" || row.Check != experiment.Unchecked || row.IOPS == 0 {
			t.Errorf("%s: content %s, check %s, %g iops", row.Policy, row.Content, row.Check, row.IOPS)
		}
	}
	if r.Rows[1].Again == nil || r.Rows[0].Again != nil {
		t.Errorf("shares %v and %v, want one of %s only", r.Rows[0].Again, r.Rows[1].Again, RowNowait)
	}
	if d.fs != "btrfs" && (len(*notes) != 1 || !strings.Contains((*notes)[0], d.fs+" has no NOCOW files")) {
		t.Errorf("notes on a %s: %q, want one", d.fs, *notes)
	}
	if err := d.Close(); err != nil || entries(t, d.path) != 0 {
		t.Errorf("close: %v, %d files left", err, entries(t, d.path))
	}
}

// What is no directory is refused in one line that names it.
func TestOpenRefuses(t *testing.T) {
	for _, path := range []string{"/dev/null", "/no/such/place"} {
		if _, err := Open(path, false, nil); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("open of %s: %v, want an error with the name", path, err)
		}
	}
}
