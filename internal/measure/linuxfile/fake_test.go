package linuxfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/errno"
	"btrlab/internal/hostio"
	"btrlab/internal/measure/fio"
	"btrlab/internal/sched"
)

// What the running kernel answers to RWF_NOWAIT and O_DIRECT depends on the machine. Here a file is
// one in memory that answers what the test says, and notes what it is asked.

type fakeFile struct {
	data     []byte
	calls    []string
	nowait   []error // of the next requests with NoWait; nil is done
	err      map[string]error
	noDirect error
}

func (f *fakeFile) note(format string, a ...any) {
	f.calls = append(f.calls, fmt.Sprintf(format, a...))
}

func (f *fakeFile) take() string {
	s := strings.Join(f.calls, "; ")
	f.calls = nil
	return s
}

func (f *fakeFile) Transfer(op hostio.Op, direct bool, p []byte, off int64, flags uint32) (int, error) {
	f.note("%s%s %d+%d%s", map[bool]string{true: "direct "}[direct], []string{"read", "write"}[op], off, len(p), map[bool]string{true: " nowait"}[flags == hostio.NoWait])
	if direct && f.noDirect != nil {
		return 0, f.noDirect
	}
	if flags != 0 && len(f.nowait) > 0 {
		err := f.nowait[0]
		if f.nowait = f.nowait[1:]; err != nil {
			return 0, err
		}
	}
	if err := f.err["transfer"]; err != nil {
		return 0, err
	}
	if op == hostio.Write {
		if n := off + int64(len(p)); n > int64(len(f.data)) {
			f.data = append(f.data, make([]byte, n-int64(len(f.data)))...)
		}
		return copy(f.data[off:], p), nil
	}
	return copy(p, f.data[min(off, int64(len(f.data))):]), nil
}

func (f *fakeFile) FD(direct bool) (int, error) {
	if direct {
		return 8, f.noDirect
	}
	return 7, nil
}

func (f *fakeFile) Truncate(size int64) error { f.note("truncate %d", size); return f.err["truncate"] }
func (f *fakeFile) Fallocate(mode uint32, off, n int64) error {
	f.note("fallocate %d %d+%d", mode, off, n)
	return f.err["fallocate"]
}
func (f *fakeFile) Sync() error                  { f.note("sync"); return f.err["sync"] }
func (f *fakeFile) Size() int64                  { return int64(len(f.data)) }
func (f *fakeFile) DropCache(off, n int64) error { f.note("drop %d+%d", off, n); return f.err["drop"] }
func (f *fakeFile) SetNoCow() error              { f.note("nocow"); return f.err["nocow"] }
func (f *fakeFile) Close() error                 { f.note("close"); return f.err["close"] }

// fakes makes a Dir whose files are in memory.
func fakes(t *testing.T, nocow bool, answer func(n int, f *fakeFile)) (d *Dir, files *[]*fakeFile, notes *[]string) {
	files, notes = &[]*fakeFile{}, &[]string{}
	d = &Dir{path: "/mnt", fs: "ext4", nocow: nocow, note: func(s string) { *notes = append(*notes, s) }, byJob: map[string]host{}}
	d.make = func(path string) (host, error) {
		if want := fmt.Sprintf("/mnt/btrlab-%d-%d", os.Getpid(), len(*files)); path != want {
			t.Errorf("file %s, want %s", path, want)
		}
		f := &fakeFile{err: map[string]error{}}
		if answer != nil {
			answer(len(*files), f)
		}
		*files = append(*files, f)
		return f, nil
	}
	return d, files, notes
}

// target is the file of a job under a row.
func target(t *testing.T, d *Dir, row string, count *Count) *file {
	t.Helper()
	x, err := d.Job(row, count)(nil, nil, "f")
	if err != nil {
		t.Fatal(err)
	}
	return x.(*file)
}

// TestRequests: each call asks for its bytes at its place, past the cache or not; a read at the end
// is io.EOF, a short one is short, and an error is what the kernel said.
func TestRequests(t *testing.T) {
	d, files, _ := fakes(t, false, nil)
	f := target(t, d, Row, new(Count))
	h := (*files)[0]
	k := sched.NewTask("test")
	p := make([]byte, 512)
	for _, c := range []struct {
		name string
		do   func() (int, error)
		want string
		n    int
		err  error
	}{
		{"write", func() (int, error) { return f.WriteAt(k, []byte("hello"), 3) }, "write 3+5", 5, nil},
		{"read", func() (int, error) { return f.ReadAt(k, p[:5], 3) }, "read 3+5", 5, nil},
		{"short read", func() (int, error) { return f.ReadAt(k, p[:5], 6) }, "read 6+5", 2, nil},
		{"read at the end", func() (int, error) { return f.ReadAt(k, p[:5], 8) }, "read 8+5", 0, io.EOF},
		{"read of nothing", func() (int, error) { return f.ReadAt(k, nil, 8) }, "read 8+0", 0, nil},
		{"direct write", func() (int, error) { return f.WriteDirect(k, p, 512) }, "direct write 512+512", 512, nil},
		{"direct read", func() (int, error) { return f.ReadDirect(k, p, 512) }, "direct read 512+512", 512, nil},
	} {
		n, err := c.do()
		if have := h.take(); have != c.want || n != c.n || err != c.err {
			t.Errorf("%s: asked for %q, have %d, %v want %q, %d, %v", c.name, have, n, err, c.want, c.n, c.err)
		}
	}
	if string(h.data[3:8]) != "hello" || f.Size(k) != 1024 {
		t.Errorf("bytes %q of %d", h.data[:8], f.Size(k))
	}
	h.err = map[string]error{"transfer": errno.EIO, "truncate": errno.EFBIG, "fallocate": errno.ENOSPC, "sync": errno.EDQUOT}
	if n, err := f.WriteAt(k, p, 0); n != 0 || err != errno.EIO {
		t.Errorf("a write that fails: %d, %v", n, err)
	}
	h.take()
	if a, b, c := f.Truncate(k, 9), f.Fallocate(k, 1, 2, 3), f.Fsync(k); a != errno.EFBIG || b != errno.ENOSPC || c != errno.EDQUOT {
		t.Error(a, b, c)
	}
	f.DropCache(k, 4, 5)
	if have, want := h.take(), "truncate 9; fallocate 1 2+3; sync; drop 4+5"; have != want {
		t.Errorf("have %q want %q", have, want)
	}
}

// TestNowaitRequests: a request of the second row is tried without waiting. EAGAIN is counted and
// the same request done again without the flag; a file system that does not know the flag counts
// the same, and is told of once; another error is the request's, and done or not it was tried once.
func TestNowaitRequests(t *testing.T) {
	d, files, notes := fakes(t, false, nil)
	var count Count
	f := target(t, d, RowNowait, &count)
	h := (*files)[0]
	k := sched.NewTask("test")
	p := []byte("abcd")
	for _, c := range []struct {
		name         string
		answer       error
		want         string
		err          error
		again, tried uint64 // so far
		notes        int
	}{
		{"done at once", nil, "write 8+4 nowait", nil, 0, 1, 0},
		{"would wait", errno.EAGAIN, "write 8+4 nowait; write 8+4", nil, 1, 2, 0},
		{"fails", errno.EIO, "write 8+4 nowait", errno.EIO, 1, 3, 0},
		{"not known", errno.EOPNOTSUPP, "write 8+4 nowait; write 8+4", nil, 2, 4, 1},
		{"not known again", errno.EOPNOTSUPP, "write 8+4 nowait; write 8+4", nil, 3, 5, 1},
		{"would wait again", fmt.Errorf("pwritev2: %w", errno.EAGAIN), "write 8+4 nowait; write 8+4", nil, 4, 6, 1},
	} {
		h.nowait, h.data = []error{c.answer}, nil
		n, err := f.WriteAt(k, p, 8)
		have := h.take()
		again, tried := count.Load()
		if have != c.want || err != c.err || (err == nil) != (n == 4) || (err == nil) != bytes.HasSuffix(h.data, p) || again != c.again || tried != c.tried || len(*notes) != c.notes {
			t.Errorf("%s: %q, %d, %v, %d of %d again, notes %q; want %q, %v, %d of %d, %d notes", c.name, have, n, err, again, tried, *notes, c.want, c.err, c.again, c.tried, c.notes)
		}
	}
	h.nowait, h.data = []error{errno.EAGAIN}, nil
	if n, err := f.ReadAt(k, p, 0); n != 0 || err != io.EOF {
		t.Errorf("a read at the end that is done again: %d, %v", n, err)
	}
	// The other row tries nothing, and its errors are not taken for answers.
	var none Count
	f = target(t, d, Row, &none)
	h.take()
	h.err["transfer"] = errno.EAGAIN
	if _, err := f.WriteAt(k, p, 8); err != errno.EAGAIN || h.take() != "write 8+4" {
		t.Errorf("without RWF_NOWAIT: %v", err)
	}
	if again, tried := none.Load(); again != 0 || tried != 0 {
		t.Errorf("%d of %d again where none is tried", again, tried)
	}
}

// TestNoDirect: a file system without O_DIRECT fails a direct request by name. It is never done
// through the cache instead, which would be another measurement.
func TestNoDirect(t *testing.T) {
	refused := &os.PathError{Op: "open with O_DIRECT", Path: "/mnt/x", Err: errno.EINVAL}
	d, files, _ := fakes(t, false, func(_ int, f *fakeFile) { f.noDirect = refused })
	d.aio = func(int) (hostio.Queue, error) { t.Error("a queue was opened"); return nil, nil }
	for _, row := range Rows() {
		f := target(t, d, row, new(Count))
		k := sched.NewTask("test")
		if n, err := f.WriteDirect(k, make([]byte, 512), 0); n != 0 || !errors.Is(err, errno.EINVAL) {
			t.Errorf("%s: %d, %v", row, n, err)
		}
		if n, err := f.ReadDirect(k, make([]byte, 512), 0); n != 0 || !errors.Is(err, errno.EINVAL) {
			t.Errorf("%s: %d, %v", row, n, err)
		}
		if _, err := f.OpenQueue(k, fio.LibAIO, 4, true); err != error(refused) {
			t.Errorf("%s: a queue: %v", row, err)
		}
	}
	if s := (*files)[0].take(); strings.Contains(s, "; read") || strings.Contains(s, "; write") || len((*files)[0].data) > 0 {
		t.Errorf("asked for %q", s)
	}
}

// TestRounds: before each run the page cache is dropped for every file, a run that is over has
// synced them all, and each run counts for itself.
func TestRounds(t *testing.T) {
	for n := range 3 {
		d, files, _ := fakes(t, false, nil)
		d.Files = n
		k := sched.NewTask("test")
		if err := d.Prepare(k, 6000); err != nil {
			t.Fatal(err)
		}
		want := "fallocate 0 0+6000"
		if n > 0 {
			want = fmt.Sprintf("truncate %d", 6000/n)
		}
		if len(*files) != max(n, 1) {
			t.Fatalf("%d files want %d", len(*files), max(n, 1))
		}
		for _, f := range *files {
			if have := f.take(); have != want {
				t.Errorf("%d files: made by %q want %q", n, have, want)
			}
		}
		for round := range 2 {
			s, err := d.Open(k, RowNowait)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range *files {
				if have := f.take(); have != "drop 0+0" { // all of it
					t.Errorf("%d files, round %d: %q before the run, want the cache dropped", n, round, have)
				}
				f.nowait = []error{errno.EAGAIN}
			}
			if parts := s.(*session).Parts(); len(parts) != max(n, 1) {
				t.Errorf("%d parts of %d files", len(parts), n)
			}
			if _, err := s.File().WriteAt(k, []byte("x"), 0); err != nil {
				t.Error(err)
			}
			if again, tried := s.(*session).Again(); again != 1 || tried != 1 {
				t.Errorf("round %d: %d of %d again, want 1 of 1", round, again, tried)
			}
			for _, f := range *files {
				f.take()
				f.err["sync"] = errno.EIO
			}
			if err := s.Close(k); !errors.Is(err, errno.EIO) {
				t.Errorf("close: %v", err)
			}
			for _, f := range *files {
				if have := f.take(); have != "sync" {
					t.Errorf("close asks for %q want a sync", have)
				}
			}
		}
		(*files)[0].err["drop"] = errno.EBADF
		if _, err := d.Open(k, Row); err != errno.EBADF {
			t.Errorf("a cache that cannot be dropped: %v", err)
		}
	}
}

// TestSpreadOffsets: of several files each has its part of the offsets.
func TestSpreadOffsets(t *testing.T) {
	d, files, _ := fakes(t, false, nil)
	d.Files = 3
	k := sched.NewTask("test")
	if err := d.Prepare(k, 3*4096); err != nil {
		t.Fatal(err)
	}
	s, err := d.OpenRaw(k, RowNowait)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range *files {
		f.take()
		f.data = make([]byte, 4096)
		if _, err := s.File().WriteAt(k, []byte{'a' + byte(i)}, int64(i)*4096+7); err != nil || f.take() != "write 7+1" {
			t.Errorf("file %d: %v", i, err)
		}
	}
	if again, tried := s.(*session).Again(); again+tried != 0 {
		t.Errorf("a raw session tried %d", tried)
	}
}

// TestMakeFiles: where files cannot be preallocated they are set to their size; where they cannot
// be NOCOW that is told once, and another answer is an error; a name of a job is one file, and
// every file is closed, whatever one of them says.
func TestMakeFiles(t *testing.T) {
	k := sched.NewTask("test")
	d, files, notes := fakes(t, true, func(n int, f *fakeFile) { f.err["fallocate"], f.err["nocow"] = errno.EOPNOTSUPP, errno.EOPNOTSUPP })
	if err := d.Prepare(k, 4096); err != nil {
		t.Fatal(err)
	}
	if have, want := (*files)[0].take(), "nocow; fallocate 0 0+4096; truncate 4096"; have != want {
		t.Errorf("have %q want %q", have, want)
	}
	open := d.Job(Row, new(Count))
	a, _ := open(k, nil, "a")
	b, _ := open(k, nil, "b")
	c, err := open(k, nil, "a")
	if err != nil || a.(*file).h != c.(*file).h || a.(*file).h == b.(*file).h || len(*files) != 3 {
		t.Errorf("%d files, %v", len(*files), err)
	}
	if len(*notes) != 1 || (*files)[1].take() != "" {
		t.Errorf("notes %q, want one, and no other try", *notes)
	}
	(*files)[0].err["close"] = errno.EIO
	if err := d.Close(); !errors.Is(err, errno.EIO) || len(d.open)+len(d.byJob)+len(d.tests) != 0 {
		t.Errorf("close: %v", err)
	}
	for i, f := range *files {
		if !slices.Contains(f.calls, "close") {
			t.Errorf("file %d is not closed", i)
		}
	}
	for _, c := range []struct{ call string }{{"nocow"}, {"fallocate"}} {
		d, _, notes := fakes(t, true, func(_ int, f *fakeFile) { f.err[c.call] = errno.EPERM })
		if err := d.Prepare(k, 4096); !errors.Is(err, errno.EPERM) || len(*notes) != 0 {
			t.Errorf("%s refused: %v, notes %q", c.call, err, *notes)
		}
	}
}

// fakeQueue answers what the test says, in the order in which requests were given in.
type fakeQueue struct {
	asked   []string
	pending []uint32
	answers map[uint32][]int32 // by tag, the next first
	ready   []uint32
	closed  bool
}

func (q *fakeQueue) Prep(op hostio.Op, fd int, p []byte, off int64, flags uint32, tag uint32) error {
	q.asked = append(q.asked, fmt.Sprintf("%s fd %d %d+%d tag %d%s", []string{"read", "write"}[op], fd, off, len(p), tag, map[bool]string{true: " nowait"}[flags == hostio.NoWait]))
	q.pending = append(q.pending, tag)
	return nil
}

func (q *fakeQueue) Enter(wait int) error {
	q.ready = append(q.ready, q.pending...)
	q.pending = nil
	if wait > len(q.ready) {
		return errno.EIO // it would wait for ever
	}
	return nil
}

func (q *fakeQueue) Next() (uint32, int32, bool) {
	if len(q.ready) == 0 {
		return 0, 0, false
	}
	tag := q.ready[0]
	q.ready = q.ready[1:]
	res := q.answers[tag][0]
	q.answers[tag] = q.answers[tag][1:]
	return tag, res, true
}

func (q *fakeQueue) Close() error { q.closed = true; return nil }

// TestQueueDoesAgain: a queued request that answers EAGAIN has not ended. It is given in again, the
// same without the flag, and ends by its second answer; a request ends once.
func TestQueueDoesAgain(t *testing.T) {
	const eagain, eio = -int32(errno.EAGAIN), -int32(errno.EIO)
	for _, engine := range []fio.Engine{fio.LibAIO, fio.IOUring} {
		for _, row := range Rows() {
			d, _, _ := fakes(t, false, nil)
			h := &fakeQueue{answers: map[uint32][]int32{0: {4096}, 1: {eagain, 100}, 2: {eio}, 3: {eagain, eagain}}}
			wrong := func(int) (hostio.Queue, error) { return nil, errno.EPERM }
			right := func(depth int) (hostio.Queue, error) {
				if depth != 4 {
					t.Errorf("depth %d", depth)
				}
				return h, nil
			}
			if d.aio, d.ring = right, wrong; engine == fio.IOUring {
				d.aio, d.ring = wrong, right
			}
			var count Count
			k := sched.NewTask("test")
			q, err := target(t, d, row, &count).OpenQueue(k, engine, 4, true)
			if err != nil {
				t.Fatal(err)
			}
			p := make([]byte, 4096)
			for tag := range uint32(4) {
				if err := q.Prep(k, 0, int(tag%2), p[:4096-tag], int64(tag)*4096, tag); err != nil {
					t.Fatal(err)
				}
			}
			if err := q.Submit(k); err != nil {
				t.Fatal(err)
			}
			if _, err := q.Wait(k, 4); err != nil {
				t.Fatal(err)
			}
			var ends []string
			for {
				tag, n, err, ok := q.Reap(k)
				if !ok {
					break
				}
				ends = append(ends, fmt.Sprintf("%d: %d %v", tag, n, err))
			}
			dir := map[bool]string{true: "write", false: "read"}
			var want, first []string
			flag := map[string]string{RowNowait: " nowait"}[row]
			for tag := range 4 {
				first = append(first, fmt.Sprintf("%s fd 8 %d+%d tag %d", dir[tag%2 == fio.DirWrite], tag*4096, 4096-tag, tag))
				want = append(want, first[tag]+flag)
			}
			ended := []string{"0: 4096 <nil>", fmt.Sprintf("1: 0 %v", errno.EAGAIN), fmt.Sprintf("2: 0 %v", errno.EIO), fmt.Sprintf("3: 0 %v", errno.EAGAIN)}
			again, tried := count.Load()
			if row == RowNowait {
				want = append(want, first[1], first[3])
				ended = []string{"0: 4096 <nil>", ended[2], "1: 100 <nil>", ended[3]}
				if again != 2 || tried != 4 {
					t.Errorf("%d of %d again, want 2 of 4", again, tried)
				}
			} else if again+tried != 0 {
				t.Errorf("%d of %d again where none is tried", again, tried)
			}
			if !slices.Equal(h.asked, want) || !slices.Equal(ends, ended) {
				t.Errorf("%s: asked for\n%s\nwant\n%s\nends %q want %q", row, strings.Join(h.asked, "\n"), strings.Join(want, "\n"), ends, ended)
			}
			if err := q.Close(k); err != nil || !h.closed {
				t.Errorf("close: %v", err)
			}
		}
	}
}

// TestPlainFile: on a file of the machine the bytes are where they were written, and a second Dir
// has files of its own.
func TestPlainFile(t *testing.T) {
	d, _ := dir(t, false)
	k := sched.NewTask("test")
	for _, row := range Rows() {
		f := target(t, d, row, new(Count))
		if n, err := f.WriteAt(k, []byte(row), 10000); n != len(row) || err != nil {
			t.Fatal(n, err)
		}
		p := make([]byte, 100)
		if n, err := f.ReadAt(k, p, 10000); string(p[:n]) != row || err != nil {
			t.Errorf("%q, %v want %q", p[:n], err, row)
		}
		if n, err := f.ReadAt(k, p, 20000); n != 0 || err != io.EOF {
			t.Errorf("beyond the end: %d, %v", n, err)
		}
		if err := f.Truncate(k, 10000); err != nil || f.Size(k) != 10000 {
			t.Errorf("%d bytes, %v", f.Size(k), err)
		}
	}
	list, err := filepath.Glob(filepath.Join(d.path, "btrlab-*"))
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	have, err := os.ReadFile(list[0])
	if err != nil || len(have) != 10000 || len(bytes.Trim(have, "\x00")) != 0 {
		t.Errorf("%d bytes, %v", len(have), err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(list[0]); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file after the end: %v", err)
	}
}
