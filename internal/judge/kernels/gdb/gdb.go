// Package gdb speaks the remote serial protocol of gdb with the stub that qemu has for a whole
// machine: every processor is a thread. It stops processors at addresses, and lets some of them go
// on while others stay where they are.
//
// Only what a machine of qemu needs is here: x86-64, hardware breakpoints, all processors stop when
// one does.
//
// Model: none of the kernel's. The protocol is in the manual of gdb, appendix E; that a processor
// which vCont does not name stays stopped is qemu's gdbstub.c:gdb_continue_partial.
package gdb

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// Conn is a connection to a stub. Its methods are for one goroutine, but for Interrupt.
type Conn struct {
	c       net.Conn
	packets chan string // from the stub; closed with the connection
	err     error       // why packets is closed
}

// Stop says where a machine stopped.
type Stop struct {
	CPU         int // the processor that came to a breakpoint or ended a step, from 0 on
	Interrupted bool
}

// ErrRefused means that the stub did not do what it was asked.
var ErrRefused = errors.New("the gdb stub refuses")

// Open begins to speak with a stub. The machine stops.
func Open(c net.Conn) (*Conn, error) {
	g := &Conn{c: c, packets: make(chan string, 1)}
	go func() {
		defer close(g.packets)
		g.err = receive(bufio.NewReader(c), c, g.packets)
	}()
	// A machine that runs stops when a debugger comes, and the stub says so before it is asked.
	if err := g.send("qSupported:vContSupported+"); err != nil {
		return nil, err
	}
	for text := range g.packets {
		if strings.HasPrefix(text, "PacketSize") {
			_, err := g.ask("?")
			return g, err
		}
	}
	return nil, g.ended()
}

// Close ends the connection. The machine stays as it is.
func (g *Conn) Close() error { return g.c.Close() }

// receive gives every packet that arrives to the channel, and acknowledges it.
func receive(r *bufio.Reader, w io.Writer, packets chan<- string) error {
	for {
		if _, err := r.ReadString('$'); err != nil {
			return err
		}
		text, err := r.ReadString('#')
		if err != nil {
			return err
		}
		text = strings.TrimSuffix(text, "#")
		sum := make([]byte, 2)
		if _, err := io.ReadFull(r, sum); err != nil {
			return err
		}
		if want := checksum(text); string(sum) != want {
			return fmt.Errorf("packet %q has checksum %s, want %s", text, sum, want)
		}
		if _, err := io.WriteString(w, "+"); err != nil {
			return err
		}
		packets <- text
	}
}

func checksum(text string) string {
	var sum byte
	for i := range len(text) {
		sum += text[i]
	}
	return fmt.Sprintf("%02x", sum)
}

func (g *Conn) send(text string) error {
	_, err := io.WriteString(g.c, "$"+text+"#"+checksum(text))
	return err
}

// ask sends a request and gives the answer. The machine is stopped.
func (g *Conn) ask(text string) (string, error) {
	if err := g.send(text); err != nil {
		return "", err
	}
	answer, ok := <-g.packets
	if !ok {
		return "", g.ended()
	}
	if strings.HasPrefix(answer, "E") && len(answer) == 3 {
		return "", fmt.Errorf("%w %q: %s", ErrRefused, text, answer)
	}
	return answer, nil
}

func (g *Conn) ended() error { return fmt.Errorf("the connection to the gdb stub ended: %w", g.err) }

func (g *Conn) want(text, answer string) error {
	have, err := g.ask(text)
	if err == nil && have != answer {
		err = fmt.Errorf("%w %q: %q", ErrRefused, text, have)
	}
	return err
}

// Break makes every processor stop before the instruction at an address.
func (g *Conn) Break(addr uint64) error { return g.want(fmt.Sprintf("Z1,%x,1", addr), "OK") }

// Clear takes a breakpoint away.
func (g *Conn) Clear(addr uint64) error { return g.want(fmt.Sprintf("z1,%x,1", addr), "OK") }

// Registers are those that a caller of a function sees.
type Registers struct {
	RAX, RBX, RCX, RDX, RSI, RDI, RBP, RSP, R8, R9, R10, R11, R12, R13, R14, R15, RIP uint64
}

// Registers reads the registers of a processor that is stopped.
func (g *Conn) Registers(cpu int) (Registers, error) {
	var r Registers
	if err := g.want(fmt.Sprintf("Hg%x", cpu+1), "OK"); err != nil {
		return r, err
	}
	text, err := g.ask("g")
	if err != nil {
		return r, err
	}
	b, err := hex.DecodeString(text)
	if err != nil {
		return r, fmt.Errorf("%w g: %w", ErrRefused, err)
	}
	if _, err = binary.Decode(b, binary.LittleEndian, &r); err != nil {
		return r, fmt.Errorf("%w g: %d bytes", ErrRefused, len(b))
	}
	return r, nil
}

// stepTries is how often Step tries: once for each processor that may have stopped meanwhile, and
// some more.
const stepTries = 16

// Step lets one processor execute one instruction, also one with a breakpoint; the others stay.
// Where two processors come to breakpoints at once, qemu stops twice and tells of one of them, the
// second time before anything has been executed: what counts is that the processor has moved.
func (g *Conn) Step(ctx context.Context, cpu int) error {
	before, err := g.Registers(cpu)
	if err != nil {
		return err
	}
	for range stepTries {
		if err := g.send(fmt.Sprintf("vCont;s:%x", cpu+1)); err != nil {
			return err
		}
		if _, err := g.Wait(ctx); err != nil {
			return err
		}
		if after, err := g.Registers(cpu); err != nil || after.RIP != before.RIP {
			return err
		}
	}
	return fmt.Errorf("%w to step: processor %d stays at %#x", ErrRefused, cpu, before.RIP)
}

// Resume lets the processors go on that are named; the others stay where they are. Call Wait.
func (g *Conn) Resume(cpus []int) error {
	var b strings.Builder
	b.WriteString("vCont")
	for _, cpu := range cpus {
		fmt.Fprintf(&b, ";c:%x", cpu+1)
	}
	return g.send(b.String())
}

// Wait waits until the machine stops, which Resume or Step let go on.
func (g *Conn) Wait(ctx context.Context) (Stop, error) {
	select {
	case <-ctx.Done():
		return Stop{}, ctx.Err()
	case text, ok := <-g.packets:
		if !ok {
			return Stop{}, g.ended()
		}
		return parseStop(text)
	}
}

// Interrupt stops the machine, if it runs: Wait then returns.
func (g *Conn) Interrupt() error {
	_, err := g.c.Write([]byte{3})
	return err
}

// parseStop reads T05thread:02; and the like: the signal, and the thread.
func parseStop(text string) (Stop, error) {
	var s Stop
	if len(text) < 3 || text[0] != 'T' {
		return s, fmt.Errorf("%w to say where the machine stopped: %q", ErrRefused, text)
	}
	s.Interrupted = text[1:3] != "05"
	for part := range strings.SplitSeq(text[3:], ";") {
		key, value, _ := strings.Cut(part, ":")
		if key != "thread" {
			continue
		}
		if _, after, ok := strings.Cut(value, "."); ok { // p1.2: a process and a thread
			value = after
		}
		n, err := strconv.ParseUint(value, 16, 16)
		if err != nil || n == 0 {
			break
		}
		s.CPU = int(n) - 1
		return s, nil
	}
	return s, fmt.Errorf("%w to say which processor stopped: %q", ErrRefused, text)
}
