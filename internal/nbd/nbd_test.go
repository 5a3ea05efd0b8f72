package nbd

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"btrlab/internal/errno"
)

func TestNegotiate(t *testing.T) {
	d := newMemDisk(10000)
	s := New(d, Options{Name: "disk"})
	c := dial(t, s)

	kinds := func(what string, r []reply, want ...uint32) {
		t.Helper()
		var have []uint32
		for _, x := range r {
			have = append(have, x.kind)
		}
		if !slices.Equal(have, want) {
			t.Errorf("%s: have %#x want %#x", what, have, want)
		}
	}
	r := c.option(optList, nil)
	kinds("list", r, repServer, repAck)
	if name, _, ok := cutName(r[0].data); !ok || name != "disk" {
		t.Errorf("list: have %q want disk", name)
	}
	kinds("list with data", c.option(optList, []byte{1}), repErrInvalid)
	kinds("unknown option", c.option(77, []byte("data")), repErrUnsup)
	kinds("TLS", c.option(5, nil), repErrUnsup)
	kinds("too long", c.option(optInfo, make([]byte, optionMax+1)), repErrTooBig)
	kinds("info of nothing", c.option(optInfo, infoData("nothing")), repErrUnknown)
	kinds("info cut", c.option(optInfo, infoData("disk", infoName)[:11]), repErrInvalid)
	kinds("info with a long name", c.option(optInfo, be.AppendUint32(nil, 1<<31)), repErrInvalid)
	r = c.option(optInfo, infoData("disk", infoName, infoName, 99))
	kinds("info", r, repInfo, repInfo, repInfo, repAck)
	want := be.AppendUint64(be.AppendUint16(nil, infoExport), 10000)
	want = be.AppendUint16(want, flagHasFlags|flagFlush|flagFUA|flagTrim|flagZeroes|flagMultiConn)
	if !bytes.Equal(r[0].data, want) {
		t.Errorf("info: have % x want % x", r[0].data, want)
	}
	if !bytes.Equal(r[1].data, []byte{0, 3, 0, 0, 0, 1, 0, 0, 0x10, 0, 2, 0, 0, 0}) {
		t.Errorf("block size: % x", r[1].data)
	}
	if string(r[2].data[2:]) != "disk" {
		t.Errorf("name: %q", r[2].data)
	}

	kinds("context without structured replies", c.option(optSetMeta, metaData("", metaAllocation)), repErrInvalid)
	kinds("structured with data", c.option(optStructuredReply, []byte{0}), repErrInvalid)
	kinds("structured", c.option(optStructuredReply, nil), repAck)
	kinds("list contexts", c.option(optListMeta, metaData("disk")), repMeta, repAck)
	kinds("list contexts of base", c.option(optListMeta, metaData("disk", "base:")), repMeta, repAck)
	kinds("list other contexts", c.option(optListMeta, metaData("disk", "qemu:")), repAck)
	kinds("contexts of nothing", c.option(optSetMeta, metaData("nothing", metaAllocation)), repErrUnknown)
	kinds("contexts cut", c.option(optSetMeta, be.AppendUint32(withLen(""), 1<<30)), repErrInvalid)
	kinds("contexts with more", c.option(optSetMeta, append(metaData(""), 0)), repErrInvalid)
	kinds("set base:", c.option(optSetMeta, metaData("", "base:")), repAck)
	r = c.option(optSetMeta, metaData("", "x:y", metaAllocation))
	kinds("set", r, repMeta, repAck)
	if be.Uint32(r[0].data) != metaID || string(r[0].data[4:]) != metaAllocation {
		t.Errorf("set: % x", r[0].data)
	}
	r = c.option(optGo, infoData("disk"))
	kinds("go", r, repInfo, repInfo, repAck)
	if f := be.Uint16(r[0].data[10:]); f&flagDF == 0 {
		t.Errorf("structured, and have flags %#x without DF", f)
	}
	c.structured = true
	c.ok(request{cmd: cmdFlush}, nil)
	c.send(request{cmd: cmdDisc}, nil)
	c.ends()
}

// TestExportName: nbd-client of old chooses so, and may want 124 zeros.
func TestExportName(t *testing.T) {
	s := New(newMemDisk(4096), Options{ReadOnly: true, NoTrim: true})
	for _, zeros := range []int{0, 124} {
		a, b := net.Pipe()
		go s.ServeConn(b)
		c := &client{t: t, nc: a}
		c.read(18)
		c.write(be.AppendUint32(nil, uint32(handshakeFixed|handshakeNoZeroes*(1-min(zeros, 1)))))
		c.sendOption(optExportName, nil)
		want := be.AppendUint16(be.AppendUint64(nil, 4096), flagHasFlags|flagReadOnly|flagFlush|flagFUA|flagZeroes|flagMultiConn)
		if p := c.read(10 + zeros); !bytes.Equal(p, append(want, make([]byte, zeros)...)) {
			t.Errorf("have % x want % x", p, want)
		}
		c.ok(request{cmd: cmdRead, n: 4096}, nil)
		a.Close()
	}
	c := dial(t, s)
	c.sendOption(optExportName, []byte("nothing"))
	c.ends()
}

// TestCommands does each command, with simple and with structured replies.
func TestCommands(t *testing.T) {
	for _, structured := range []bool{false, true} {
		t.Run(fmt.Sprintf("structured=%v", structured), func(t *testing.T) {
			d := newMemDisk(1<<20 + 100)
			c := open(t, New(d, Options{}), structured)
			if c.size != 1<<20+100 {
				t.Errorf("size: have %d", c.size)
			}
			c.ok(request{cmd: cmdWrite, off: 1000, n: 3000}, filled(3000, 'a'))
			if p := c.ok(request{cmd: cmdRead, off: 999, n: 3002}, nil); !bytes.Equal(p, slices.Concat([]byte{0}, filled(3000, 'a'), []byte{0})) {
				t.Error("what was written is not read")
			}
			c.ok(request{cmd: cmdRead, off: 5, n: 0}, nil)
			c.ok(request{cmd: cmdWrite, off: 5, n: 0}, nil)
			if d.flushes != 0 {
				t.Errorf("%d flushes that nobody asked for", d.flushes)
			}
			c.ok(request{cmd: cmdFlush}, nil)
			c.ok(request{cmd: cmdWrite, flags: cmdFlagFUA, n: 1}, []byte{1})
			c.ok(request{cmd: cmdZeroes, flags: cmdFlagFUA | cmdFlagNoHole, off: 4096, n: 4096}, nil)
			c.ok(request{cmd: cmdTrim, flags: cmdFlagFUA, off: 8192, n: 8192}, nil)
			c.ok(request{cmd: cmdRead, flags: cmdFlagFUA, n: 1}, nil)
			if d.flushes != 4 {
				t.Errorf("have %d flushes, want 1 and 3 of FUA", d.flushes)
			}
			c.ok(request{cmd: cmdZeroes, off: 1000, n: 3000}, nil)
			if d.data[999] != 0 || !bytes.Equal(d.data[1000:4000], make([]byte, 3000)) || d.states[4] != Hole|Zeros {
				t.Error("zeroes left bytes")
			}
			if d.states[4096/memBlock] != Zeros {
				t.Errorf("NO_HOLE: have state %d", d.states[4096/memBlock])
			}
			end := uint64(c.size)
			c.wants(22, request{cmd: cmdRead, off: end - 1, n: 2}, nil)
			c.wants(22, request{cmd: cmdRead, off: 1<<64 - 1, n: 2}, nil)
			c.wants(22, request{cmd: cmdTrim, off: end, n: 1}, nil)
			c.wants(28, request{cmd: cmdWrite, off: end - 1, n: 2}, []byte{1, 2})
			c.wants(28, request{cmd: cmdZeroes, off: end + 1, n: 0}, nil)
			c.wants(22, request{cmd: cmdRead, n: MaxRequest + 1}, nil)
			c.wants(22, request{cmd: 99}, nil)
			c.wants(22, request{cmd: cmdRead, flags: 1 << 9, n: 1}, nil)
			c.wants(22, request{cmd: cmdWrite, flags: cmdFlagNoHole, n: 1}, []byte{1})
			if d.data[len(d.data)-1] != 0 {
				t.Error("a write that was refused was done")
			}
			d.err = &errno.OpError{Op: "write", Err: errno.EDQUOT}
			c.wants(28, request{cmd: cmdWrite, n: 1}, []byte{1})
			d.err = errors.New("no number")
			c.wants(5, request{cmd: cmdRead, n: 9}, nil)
			d.err = nil
			c.ok(request{cmd: cmdRead, n: 9}, nil)
		})
	}
}

func TestTooLongWrite(t *testing.T) {
	c := open(t, New(newMemDisk(64<<20), Options{}), true)
	c.wants(22, request{cmd: cmdWrite, n: MaxRequest + 1}, make([]byte, MaxRequest+1))
	c.ok(request{cmd: cmdWrite, n: MaxRequest}, make([]byte, MaxRequest))
	if p := c.ok(request{cmd: cmdRead, n: MaxRequest}, nil); len(p) != MaxRequest {
		t.Errorf("have %d bytes", len(p))
	}
}

func TestReadOnly(t *testing.T) {
	d := newMemDisk(4096)
	c := open(t, New(d, Options{ReadOnly: true}), true)
	for _, cmd := range []uint16{cmdWrite, cmdTrim, cmdZeroes} {
		c.wants(1, request{cmd: cmd, n: 1}, filled(1, 'x')[:1-min(1, int(cmd-cmdWrite))])
	}
	c.ok(request{cmd: cmdRead, n: 4096}, nil)
	c.ok(request{cmd: cmdFlush}, nil)
	if !bytes.Equal(d.data, make([]byte, 4096)) {
		t.Error("it was written")
	}
}

func TestBlockStatus(t *testing.T) {
	d := newMemDisk(32 * memBlock)
	c := open(t, New(d, Options{}), true)
	c.ok(request{cmd: cmdWrite, off: 2 * memBlock, n: 3 * memBlock}, make([]byte, 3*memBlock))
	c.ok(request{cmd: cmdZeroes, flags: cmdFlagNoHole, off: 5 * memBlock, n: memBlock}, nil)
	status := func(want string, q request) {
		t.Helper()
		q.cmd = cmdStatus
		p := c.ok(q, nil)
		if be.Uint32(p) != metaID {
			t.Errorf("context %d", be.Uint32(p))
		}
		var l []string
		for p = p[4:]; len(p) > 0; p = p[8:] {
			l = append(l, fmt.Sprintf("%d:%d", be.Uint32(p), be.Uint32(p[4:])))
		}
		if have := strings.Join(l, " "); have != want {
			t.Errorf("have %q want %q", have, want)
		}
	}
	status("1024:3 1536:0 512:2 13312:3", request{n: 32 * memBlock})
	status("412:3 1:0", request{off: 612, n: 413})
	status("924:3", request{off: 100, n: 32*memBlock - 100, flags: cmdFlagReqOne})
	c.wants(22, request{cmd: cmdStatus}, nil)
	c.wants(22, request{cmd: cmdStatus, n: 32*memBlock + 1}, nil)

	plain := open(t, New(d, Options{}), false)
	plain.wants(22, request{cmd: cmdStatus, n: 1}, nil)
}

// TestManyExtents: the answer is bounded, and ends before the range does.
func TestManyExtents(t *testing.T) {
	d := newMemDisk((2*extentsMax + 2) * memBlock)
	for i := range d.states {
		d.states[i] = State(i % 2 * 3)
	}
	c := open(t, New(d, Options{}), true)
	if p := c.ok(request{cmd: cmdStatus, n: uint32(len(d.data))}, nil); len(p) != 4+8*extentsMax {
		t.Errorf("have %d bytes want %d", len(p), 4+8*extentsMax)
	}
}

// TestInFlight: a read that waits holds nothing up but itself, and replies come in any order.
func TestInFlight(t *testing.T) {
	d := newMemDisk(4096)
	d.readHold = make(chan struct{})
	c := open(t, New(d, Options{}), true)
	read := c.send(request{cmd: cmdRead, n: 5}, nil)
	c.ok(request{cmd: cmdWrite, n: 5}, []byte("hello"))
	close(d.readHold)
	cookie, no, data := c.result(0)
	if cookie != read || no != 0 || string(data) != "hello" {
		t.Errorf("have %d %d %q", cookie, no, data)
	}
}

// TestFlushErrorIsTold: two clients write over two connections, and the flush of one of them fails.
// The other one must hear it, once, although the flush of its own succeeds.
func TestFlushErrorIsTold(t *testing.T) {
	d := newMemDisk(4096)
	s := New(d, Options{})
	a, b := open(t, s, true), open(t, s, true)
	d.flushErrs = []error{errno.ENOSPC}
	a.wants(28, request{cmd: cmdFlush}, nil)
	late := open(t, s, true)
	b.wants(28, request{cmd: cmdWrite, flags: cmdFlagFUA, n: 1}, []byte{1})
	for _, c := range []*client{a, b, late} {
		c.ok(request{cmd: cmdFlush}, nil)
	}
}

// TestFlushesShare: flushes that come while one runs are answered by the next one, not by it.
func TestFlushesShare(t *testing.T) {
	d := newMemDisk(4096)
	d.entered, d.hold = make(chan struct{}), make(chan struct{})
	s := New(d, Options{})
	a, b := open(t, s, true), open(t, s, true)
	a.send(request{cmd: cmdFlush}, nil)
	<-d.entered
	d.flushErrs = []error{nil, errno.EIO}
	b.send(request{cmd: cmdFlush}, nil)
	b.send(request{cmd: cmdFlush}, nil)
	d.hold <- struct{}{}
	if _, no, _ := a.result(0); no != 0 {
		t.Errorf("the first: error %d", no)
	}
	go func() { // the two of b are one or two flushes
		for range d.entered {
			d.hold <- struct{}{}
		}
	}()
	defer close(d.entered)
	for range 2 {
		if _, no, _ := b.result(0); no != 5 {
			t.Errorf("a flush after the first: error %d want 5", no)
		}
		d.mu.Lock()
		d.flushErrs = []error{errno.EIO}
		d.mu.Unlock()
	}
}

// TestMalformed: what does not speak the protocol loses its connection, and the server goes on.
func TestMalformed(t *testing.T) {
	var mu sync.Mutex
	var warned []error
	d := newMemDisk(4096)
	s := New(d, Options{Warn: func(err error) {
		mu.Lock()
		defer mu.Unlock()
		warned = append(warned, err)
	}})
	a, b := net.Pipe()
	go s.ServeConn(b)
	c := &client{t: t, nc: a}
	c.read(18)
	c.write(be.AppendUint32(nil, 1<<7))
	c.ends()
	a.Close()

	c = dial(t, s)
	c.write(filled(16, 'x'))
	c.ends()
	c = open(t, s, true)
	c.write(filled(requestLen, 'x'))
	c.ends()
	c = dial(t, s)
	if r := c.option(optAbort, nil); r[0].kind != repAck {
		t.Errorf("abort: %#x", r[0].kind)
	}
	c.ends()
	if len(warned) != 3 {
		t.Errorf("have warnings %v, want 3", warned)
	}

	// gone in the middle: of an option, of a header, of a payload
	c = dial(t, s)
	c.write(be.AppendUint64(nil, magicOption))
	c.nc.Close()
	c = open(t, s, false)
	c.write([]byte{0x25, 0x60})
	c.nc.Close()
	c = open(t, s, false)
	c.send(request{cmd: cmdWrite, n: 4096}, filled(2048, 'x'))
	c.nc.Close()
	c = open(t, s, false)
	if p := c.ok(request{cmd: cmdRead, n: 4096}, nil); !bytes.Equal(p, make([]byte, 4096)) {
		t.Error("half a write was done")
	}
}

// TestShutdown: the requests that were read are answered, then every connection ends.
func TestShutdown(t *testing.T) {
	d := newMemDisk(4096)
	d.entered, d.hold = make(chan struct{}), make(chan struct{})
	s := New(d, Options{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- s.Serve(l) }()
	nc, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	c := &client{t: t, nc: nc, structured: true}
	c.read(18)
	c.write(be.AppendUint32(nil, handshakeFixed|handshakeNoZeroes))
	c.option(optStructuredReply, nil)
	c.option(optGo, infoData(""))
	idle := open(t, s, true)
	c.send(request{cmd: cmdFlush}, nil)
	<-d.entered
	down := make(chan error)
	go func() { down <- s.Shutdown() }()
	idle.ends()
	select {
	case <-down:
		t.Error("the end came before the flush")
	default:
	}
	d.hold <- struct{}{}
	if _, no, _ := c.result(0); no != 0 {
		t.Errorf("flush: error %d", no)
	}
	c.ends()
	if err := errors.Join(<-down, <-served); err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("it listens after the end")
	}
}

// TestBounded: a client has at most memoryMax bytes under way; the next request waits for room.
func TestBounded(t *testing.T) {
	d := newMemDisk(MaxRequest)
	d.readHold = make(chan struct{})
	c := open(t, New(d, Options{}), true)
	const reads = 6
	go func() {
		for range reads {
			c.send(request{cmd: cmdRead, n: MaxRequest}, nil)
		}
	}()
	for range reads {
		d.readHold <- struct{}{}
		if _, no, data := c.result(0); no != 0 || len(data) != MaxRequest {
			t.Errorf("read: %d, %d bytes", no, len(data))
		}
	}
	if d.peak > memoryMax {
		t.Errorf("have %d bytes under way at once, want at most %d", d.peak, memoryMax)
	}
}

func TestBudget(t *testing.T) {
	var b budget
	b.init(10)
	b.take(7)
	took := make(chan int)
	go func() {
		b.take(5)
		b.mu.Lock()
		defer b.mu.Unlock()
		took <- b.left
	}()
	b.give(4)
	if left := <-took; left != 2 {
		t.Errorf("have %d left, want 2", left)
	}
}

// bytesConn is a connection that a fuzzer has written.
type bytesConn struct {
	net.Conn
	r   *bytes.Reader
	mu  sync.Mutex
	out bytes.Buffer
}

func (c *bytesConn) Read(p []byte) (int, error) { return c.r.Read(p) }

func (c *bytesConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.Write(p)
}
func (c *bytesConn) Close() error                     { return nil }
func (c *bytesConn) SetDeadline(time.Time) error      { return nil }
func (c *bytesConn) SetReadDeadline(time.Time) error  { return nil }
func (c *bytesConn) SetWriteDeadline(time.Time) error { return nil }

// FuzzConnection: whatever a client sends, the disk's bytes are read and written inside it, what
// goes out is whole replies, and a connection ends.
func FuzzConnection(f *testing.F) {
	opt := func(id uint32, data []byte) []byte {
		return append(be.AppendUint32(be.AppendUint32(be.AppendUint64(nil, magicOption), id), uint32(len(data))), data...)
	}
	req := func(q request, payload string) []byte {
		var h [requestLen]byte
		q.encode(&h)
		return append(h[:], payload...)
	}
	begin := be.AppendUint32(nil, handshakeFixed|handshakeNoZeroes)
	f.Add(slices.Concat(begin, opt(optList, nil), opt(optStructuredReply, nil), opt(optSetMeta, metaData("", metaAllocation)), opt(optGo, infoData("", 1, 3)),
		req(request{cmd: cmdWrite, off: 3, n: 4, flags: cmdFlagFUA}, "abcd"), req(request{cmd: cmdRead, n: 10}, ""), req(request{cmd: cmdStatus, n: 4096}, ""),
		req(request{cmd: cmdZeroes, off: 4000, n: 96}, ""), req(request{cmd: cmdTrim, n: 1}, ""), req(request{cmd: cmdFlush}, ""), req(request{cmd: cmdDisc}, "")))
	f.Add(slices.Concat(begin, opt(optExportName, nil), req(request{cmd: cmdWrite, off: 4095, n: 4}, "abcd")))
	f.Add(slices.Concat(begin, opt(optListMeta, metaData("x", "base:", "")), opt(optAbort, nil)))
	f.Fuzz(func(t *testing.T, in []byte) {
		c := &bytesConn{r: bytes.NewReader(in)}
		New(newMemDisk(4096), Options{}).ServeConn(c)
		wholeReplies(t, &c.out)
		if name, infos, ok := parseInfo(in); ok && !bytes.Equal(infoBytes(name, infos), in) {
			t.Errorf("info % x is %q %v", in, name, infos)
		}
		if name, queries, ok := parseMeta(in); ok && !bytes.Equal(metaBytes(name, queries), in) {
			t.Errorf("contexts % x are %q %q", in, name, queries)
		}
	})
}

func lenBytes(s string) []byte { return append(be.AppendUint32(nil, uint32(len(s))), s...) }

func infoBytes(name string, infos []uint16) []byte {
	p := be.AppendUint16(lenBytes(name), uint16(len(infos)))
	for _, i := range infos {
		p = be.AppendUint16(p, i)
	}
	return p
}

func metaBytes(name string, queries []string) []byte {
	p := be.AppendUint32(lenBytes(name), uint32(len(queries)))
	for _, q := range queries {
		p = append(p, lenBytes(q)...)
	}
	return p
}

// wholeReplies wants the greeting and replies to options with their data; and if the negotiation
// did not end by the old way, whose replies have no length, structured replies after them.
func wholeReplies(t *testing.T, out *bytes.Buffer) {
	p := out.Bytes()
	if len(p) < 18 {
		t.Fatalf("have % x, want a greeting", p)
	}
	for p = p[18:]; len(p) >= 20 && be.Uint64(p) == magicOptReply; {
		n := int(be.Uint32(p[16:]))
		if n > len(p)-20 {
			t.Fatalf("a reply is cut: %d of %d bytes", len(p)-20, n)
		}
		p = p[20+n:]
	}
	for len(p) >= 20 && be.Uint32(p) == magicStructured {
		n := int(be.Uint32(p[16:]))
		if n > len(p)-20 {
			t.Fatalf("a chunk is cut: %d of %d bytes", len(p)-20, n)
		}
		if p = p[20+n:]; len(p) > 0 && be.Uint32(p) != magicStructured {
			t.Fatalf("after a chunk: % x", p[:4])
		}
	}
}

// TestCutName: a name ends inside what was sent, and is as long as the protocol allows: a length
// that says more is refused, and read nowhere.
func TestCutName(t *testing.T) {
	of := func(n uint32, rest int) []byte { return append(be.AppendUint32(nil, n), make([]byte, rest)...) }
	for _, k := range []struct {
		name string
		p    []byte
		n    int // of the name; -1 is refused
		rest int
	}{
		{"nothing", nil, -1, 0},
		{"half a length", of(0, 0)[:3], -1, 0},
		{"empty", of(0, 0), 0, 0},
		{"empty, and more", of(0, 9), 0, 9},
		{"all", of(9, 9), 9, 0},
		{"a part", of(4, 9), 4, 5},
		{"one byte short", of(10, 9), -1, 0},
		{"as long as can be", of(nameMax, nameMax+2), nameMax, 2},
		{"longer, and sent", of(nameMax+1, nameMax+2), -1, 0},
		{"more than there is of all", of(1<<32-1, 9), -1, 0},
	} {
		name, rest, ok := cutName(k.p)
		if ok != (k.n >= 0) || ok && (len(name) != k.n || len(rest) != k.rest) {
			t.Errorf("%s: name of %d bytes, %d more, %v; want %d and %d", k.name, len(name), len(rest), ok, k.n, k.rest)
		}
	}
}
