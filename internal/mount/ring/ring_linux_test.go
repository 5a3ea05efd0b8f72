package ring

import (
	"bytes"
	"slices"
	"syscall"
	"testing"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// requests is an entry that has a list of requests, and keeps the answers.
type requests struct {
	todo    []request
	answers []answer
	head    [128]byte
	payload [1 << 16]byte
}

type request struct {
	header fuse.InHeader
	op     any // of the library, with its header
	rest   string
}

type answer struct {
	fuse.OutHeader
	payload []byte
}

func (e *requests) Fetch() (header, op, payload []byte, err error) {
	if len(e.todo) == 0 {
		return nil, nil, nil, syscall.ENOTCONN
	}
	q := e.todo[0]
	e.todo = e.todo[1:]
	q.header.Unique = uint64(len(e.answers) + 7)
	switch in := q.op.(type) {
	case *fuse.WriteIn:
		op = unsafe.Slice((*byte)(unsafe.Pointer(in)), unsafe.Sizeof(*in))[headerLen:]
	case *fuse.ReadIn:
		op = unsafe.Slice((*byte)(unsafe.Pointer(in)), unsafe.Sizeof(*in))[headerLen:]
	case *fuse.MkdirIn:
		op = unsafe.Slice((*byte)(unsafe.Pointer(in)), unsafe.Sizeof(*in))[headerLen:]
	}
	q.header.Length = uint32(headerLen + len(op) + len(q.rest))
	copy(e.head[:], unsafe.Slice((*byte)(unsafe.Pointer(&q.header)), headerLen))
	return e.head[:headerLen], op, e.payload[:copy(e.payload[:], q.rest)], nil
}

func (e *requests) Answer() (header, payload []byte) { return e.head[:answerLen], e.payload[:] }

func (e *requests) Commit(n int) {
	e.answers = append(e.answers, answer{*(*fuse.OutHeader)(unsafe.Pointer(&e.head)), bytes.Clone(e.payload[:n])})
}

// oneFile has a file of bytes, and directories that it only names.
type oneFile struct {
	fuse.RawFileSystem
	data  []byte
	names []string
}

func (f *oneFile) Write(_ <-chan struct{}, in *fuse.WriteIn, p []byte) (uint32, fuse.Status) {
	if in.Fh != 5 || in.NodeId != 2 {
		return 0, fuse.EBADF
	}
	return uint32(copy(f.data[in.Offset:], p)), fuse.OK
}

func (f *oneFile) Read(_ <-chan struct{}, in *fuse.ReadIn, p []byte) (fuse.ReadResult, fuse.Status) {
	switch {
	case in.Fh != 5:
		return nil, fuse.EBADF
	case in.Offset == 0: // its own bytes
		return fuse.ReadResultData(f.data[:in.Size]), fuse.OK
	}
	return fuse.ReadResultData(p[:copy(p, f.data[in.Offset:])]), fuse.OK
}

func (f *oneFile) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	f.names = append(f.names, name)
	out.NodeId = 9
	return fuse.OK
}

// An entry's answers are those of the file system, each with the number of its request.
func TestWorker(t *testing.T) {
	f := &oneFile{RawFileSystem: fuse.NewDefaultRawFileSystem(), data: make([]byte, 100)}
	write := fuse.InHeader{Opcode: opWrite, NodeId: 2}
	read := fuse.InHeader{Opcode: opRead, NodeId: 2}
	mkdir, unlink := fuse.InHeader{Opcode: 9, NodeId: 1}, fuse.InHeader{Opcode: 10, NodeId: 1}
	e := &requests{todo: []request{
		{write, &fuse.WriteIn{Fh: 5, Offset: 10, Size: 5}, "hello"},
		{write, &fuse.WriteIn{Fh: 6, Size: 2}, "no"},
		{read, &fuse.ReadIn{Fh: 5, Offset: 12, Size: 200}, ""},
		{read, &fuse.ReadIn{Fh: 5, Size: 15}, ""},
		{read, &fuse.ReadIn{Fh: 6, Size: 15}, ""},
		{mkdir, &fuse.MkdirIn{Mode: 0o755}, "dir\x00"},
		{unlink, nil, "gone\x00"},
	}}
	for _, all := range []bool{false, true} {
		clear(f.data)
		f.names = nil
		r := &Rings{fs: f, rest: fuse.NewProtocolServer(f, &fuse.MountOptions{}), all: all}
		if err := r.init(&fuse.InitIn{Major: 7, Minor: 44}); err != nil {
			t.Fatal(err)
		}
		k := &requests{todo: slices.Clone(e.todo)}
		w := worker{entry: k}
		if err := w.serve(r); err != nil {
			t.Fatal(err)
		}
		if len(k.answers) != len(e.todo) {
			t.Fatalf("%d answers to %d requests", len(k.answers), len(e.todo))
		}
		for i, a := range k.answers {
			if a.Unique != uint64(i+7) || int(a.Length) != answerLen+len(a.payload) {
				t.Errorf("request %d: answer %+v with %d bytes", i, a.OutHeader, len(a.payload))
			}
		}
		status := func(i int) syscall.Errno { return syscall.Errno(-k.answers[i].Status) }
		p := func(i int) string { return string(k.answers[i].payload) }
		if n := *(*fuse.WriteOut)(unsafe.Pointer(&k.answers[0].payload[0])); n.Size != 5 || string(f.data[10:15]) != "hello" {
			t.Errorf("wrote %d: %q", n.Size, f.data)
		}
		if status(1) != syscall.EBADF || p(1) != "" || status(4) != syscall.EBADF || p(4) != "" {
			t.Errorf("of a bad handle: %v %q, %v %q", status(1), p(1), status(4), p(4))
		}
		if p(2) != string(f.data[12:]) || p(3) != string(f.data[:15]) {
			t.Errorf("read %q and %q, want %q and its first 15", p(2), p(3), f.data)
		}
		if !slices.Equal(f.names, []string{"dir"}) || len(k.answers[5].payload) != int(unsafe.Sizeof(fuse.EntryOut{})) {
			t.Errorf("mkdir of %q answers %d bytes", f.names, len(k.answers[5].payload))
		}
		if status(6) != syscall.ENOSYS {
			t.Errorf("unlink: %v, want ENOSYS", status(6))
		}
	}
}
