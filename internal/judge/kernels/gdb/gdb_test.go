package gdb

import (
	"bufio"
	"context"
	"errors"
	"net"
	"strings"
	"testing"
)

// stub answers as qemu's does: what it is asked, and the answers.
func stub(t *testing.T, answers map[string]string, first string) *Conn {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	packet := func(text string) []byte { return []byte("$" + text + "#" + checksum(text)) }
	out := make(chan []byte, 16)
	go func() {
		for b := range out {
			if _, err := theirs.Write(b); err != nil {
				return
			}
		}
	}()
	go func() {
		defer close(out)
		if first != "" {
			out <- packet(first)
		}
		in := bufio.NewReader(theirs)
		for {
			if _, err := in.ReadString('$'); err != nil {
				return
			}
			text, err := in.ReadString('#')
			if err != nil {
				return
			}
			text = strings.TrimSuffix(text, "#")
			answer, more, several := strings.Cut(answers[text], "|")
			if several {
				answers[text] = more
			}
			out <- packet(answer)
		}
	}()
	g, err := Open(ours)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// hello is what every stub is asked first.
func hello(more map[string]string) map[string]string {
	m := map[string]string{"qSupported:vContSupported+": "PacketSize=1000;vContSupported+", "?": "T05thread:01;"}
	for k, v := range more {
		m[k] = v
	}
	return m
}

// A machine that runs stops when a debugger comes, and says so before it is asked: that is no
// answer. Processors are numbered from 0 on, threads from 1 on.
func TestStub(t *testing.T) {
	regs := strings.Repeat("0", 16*15) + "f0de000000000000" + "efcdab8967452301" + "00000000"
	g := stub(t, hello(map[string]string{"Z1,ffff1000,1": "OK", "z1,ffff1000,1": "E22", "Hg3": "OK", "g": regs,
		"vCont;c:1;c:3": "T05thread:03;"}), "T02thread:01;")
	if err := g.Break(0xffff1000); err != nil {
		t.Error(err)
	}
	if err := g.Clear(0xffff1000); !errors.Is(err, ErrRefused) {
		t.Errorf("a breakpoint that is not there is cleared: %v", err)
	}
	r, err := g.Registers(2)
	if err != nil || r.RIP != 0x0123456789abcdef || r.R15 != 0xdef0 {
		t.Errorf("registers %+v, %v", r, err)
	}
	if err := g.Resume([]int{0, 2}); err != nil {
		t.Error(err)
	}
	if s, err := g.Wait(context.Background()); err != nil || s.CPU != 2 || s.Interrupted {
		t.Errorf("stop %+v, %v", s, err)
	}
}

// The stop of a step may be that of another processor, which came to a breakpoint at the same time:
// a step is done when the processor has moved, and one that never moves is an error.
func TestStep(t *testing.T) {
	at := func(rip string) string { return strings.Repeat("0", 16*16) + rip + "00000000" }
	here, there := at("0010000000000000"), at("0410000000000000")
	g := stub(t, hello(map[string]string{"Hg2": "OK", "g": here + "|" + here + "|" + there + "|" + there, "vCont;s:2": "T05thread:03;|T05thread:p01.02;|E01"}), "")
	if err := g.Step(context.Background(), 1); err != nil {
		t.Error(err)
	}
	g = stub(t, hello(map[string]string{"Hg2": "OK", "g": here, "vCont;s:2": "T05thread:02;"}), "")
	if err := g.Step(context.Background(), 1); !errors.Is(err, ErrRefused) {
		t.Errorf("a processor that does not move: %v", err)
	}
}

// What is no stop is one line.
func TestStop(t *testing.T) {
	for text, want := range map[string]Stop{"T02thread:01;": {CPU: 0, Interrupted: true}, "T05thread:0b;": {CPU: 10}, "T05swbreak:;thread:p1.4;": {CPU: 3}} {
		if s, err := parseStop(text); err != nil || s != want {
			t.Errorf("%s: %+v, %v, want %+v", text, s, err, want)
		}
	}
	for _, text := range []string{"", "OK", "T05", "T05thread:0;", "T05thread:x;", "W00"} {
		if s, err := parseStop(text); !errors.Is(err, ErrRefused) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %+v, %v", text, s, err)
		}
	}
}

// A packet whose bytes are not those that were sent ends the connection.
func TestChecksum(t *testing.T) {
	packets := make(chan string, 2)
	err := receive(bufio.NewReader(strings.NewReader("+$OK#9a$OK#9b")), &strings.Builder{}, packets)
	if len(packets) != 1 || err == nil || !strings.Contains(err.Error(), "checksum") {
		t.Errorf("%d packets, %v", len(packets), err)
	}
}
