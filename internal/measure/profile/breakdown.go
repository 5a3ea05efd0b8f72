package profile

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/google/pprof/profile"

	"btrlab/internal/draw"
	"btrlab/internal/module"
	"btrlab/internal/prose"
)

// breakdown is where the time of a run went: processor time by part, and waits by lock class.
type breakdown struct {
	began time.Time
	cpu   bytes.Buffer // a CPU profile
	locks *Locks
}

// listen begins to collect waits.
func (b *breakdown) listen() (stop func()) {
	b.locks, stop = listen()
	return stop
}

// rowsMax is how many parts and classes have a row; a last one is the sum of the others.
const rowsMax = 12

// parts are the functions that are a part of their own wherever they are called from, by the prefix
// of the innermost one.
var parts = []struct{ prefix, part string }{
	{"internal/runtime/syscall", sysCalls}, {"syscall.", sysCalls}, {"golang.org/x/sys/unix.", sysCalls}, {"runtime.cgocall", sysCalls},
	{"runtime.memmove", copies}, {"runtime.memclr", copies}, {"internal/bytealg.", copies},
	{"hash/crc32.", "checksums"}, {"github.com/cespare/xxhash", "checksums"}, {"github.com/zeebo/xxh3", "checksums"}, {"crypto/", "checksums"}, {"golang.org/x/crypto/", "checksums"},
	{"github.com/klauspost/compress/", "compression"}, {"compress/", "compression"},
}

// callers are functions of Go's runtime whose work is a part, by any frame.
var callers = []struct{ function, part string }{
	{"runtime.mallocgc", memory}, {"runtime.gcBgMarkWorker", memory}, {"runtime.gcAssistAlloc", memory}, {"runtime.bgsweep", memory}, {"runtime.bgscavenge", memory}, {"runtime.gcStart", memory},
	{"runtime.schedule", scheduler}, {"runtime.findRunnable", scheduler}, {"runtime.mcall", scheduler}, {"runtime.ready", scheduler}, {"runtime.goready", scheduler}, {"runtime.sysmon", scheduler},
	{"runtime.semrelease1", scheduler}, {"runtime.semacquire1", scheduler}, {"runtime.mstart", scheduler},
}

const (
	sysCalls  = "system calls"
	copies    = "copies and zeroes"
	memory    = "Go: memory"
	scheduler = "Go: scheduler"
	others    = "others"
)

// partOf is the part that a stack is in, the innermost frame first: one of parts or callers, or the
// room of the innermost function of this module, as data/writeback.
func partOf(stack []string) string {
	if len(stack) == 0 {
		return others
	}
	for _, p := range parts {
		if strings.HasPrefix(stack[0], p.prefix) {
			return p.part
		}
	}
	for _, f := range stack {
		room, own := strings.CutPrefix(f, module.Path+"/")
		if own {
			room = strings.TrimPrefix(room, "internal/")
			slash := strings.LastIndexByte(room, '/') + 1
			name, _, _ := strings.Cut(room[slash:], ".")
			return room[:slash] + name
		}
		for _, c := range callers {
			if f == c.function || strings.HasPrefix(f, c.function+".") {
				return c.part
			}
		}
	}
	return others
}

// stackOf are the functions of a sample, the innermost first.
func stackOf(s *profile.Sample) (stack []string) {
	for _, l := range s.Location {
		for _, line := range l.Line {
			if line.Function != nil {
				stack = append(stack, line.Function.Name)
			}
		}
	}
	return stack
}

// share is a row: what, its time and how often.
type share struct {
	what  string
	nanos int64
	count int64
}

// longest are the rows with the most time, and the sum of the others.
func longest(rows map[string]*share) (list []share, all share) {
	for _, r := range rows {
		list = append(list, *r)
		all = share{nanos: all.nanos + r.nanos, count: all.count + r.count}
	}
	slices.SortFunc(list, func(a, b share) int { return cmp.Or(cmp.Compare(b.nanos, a.nanos), cmp.Compare(a.what, b.what)) })
	if len(list) > rowsMax {
		rest := share{what: others}
		for _, r := range list[rowsMax-1:] {
			rest = share{others, rest.nanos + r.nanos, rest.count + r.count}
		}
		list = append(list[:rowsMax-1], rest)
	}
	return list, all
}

func add(rows map[string]*share, what string, nanos, count int64) {
	if rows[what] == nil {
		rows[what] = &share{what: what}
	}
	rows[what].nanos += nanos
	rows[what].count += count
}

// write writes the tables of a run that took so long on so many processors.
func (b *breakdown) write(w io.Writer, took time.Duration, processors int) error {
	p, err := profile.Parse(&b.cpu)
	if err != nil {
		return fmt.Errorf("breakdown: %w", err)
	}
	cpu := map[string]*share{}
	for _, s := range p.Sample {
		add(cpu, partOf(stackOf(s)), s.Value[len(s.Value)-1], s.Value[0])
	}
	rows, all := longest(cpu)
	fmt.Fprintf(w, "processor time: %s of %s, which is %s on %s; %s\n\n", draw.Nanos(float64(all.nanos)), draw.Nanos(float64(took)*float64(processors)),
		draw.Nanos(float64(took)), prose.Count(processors, "processor"), prose.Count(all.count, "sample"))
	if len(rows) > 0 {
		fmt.Fprintln(w, table(rows, all.nanos, "part", false))
	}
	waits := map[string]*share{}
	for class, s := range b.locks.byClass() {
		add(waits, class, s.nanos, s.count)
	}
	if rows, all = longest(waits); all.count == 0 {
		_, err = fmt.Fprintln(w, "no task waited for a lock or for the device")
		return err
	}
	fmt.Fprintf(w, "waits: %s in all, of every task, for locks, space and the device\n\n", draw.Nanos(float64(all.nanos)))
	_, err = fmt.Fprint(w, table(rows, all.nanos, "for", true))
	return err
}

// table sets rows in columns, with what they are of as the last; waits have a number and a mean.
func table(rows []share, all int64, what string, waits bool) string {
	head := []string{"share", "time"}
	if waits {
		head = append(head, "waits", "mean")
	}
	lines := [][]string{head}
	for _, r := range rows {
		line := []string{fmt.Sprintf("%.1f %%", 100*float64(r.nanos)/float64(max(all, 1))), draw.Nanos(float64(r.nanos))}
		if waits {
			line = append(line, draw.Count(float64(r.count)), draw.Nanos(float64(r.nanos)/float64(r.count)))
		}
		lines = append(lines, line)
	}
	var b strings.Builder
	i := -1
	for line := range strings.Lines(prose.Table(2, lines)) {
		name := what
		if i >= 0 {
			name = rows[i].what
		}
		fmt.Fprintf(&b, "%s  %s\n", strings.TrimSuffix(line, "\n"), name)
		i++
	}
	return b.String()
}

// byClass are all waits by class of locks.
func (l *Locks) byClass() map[string]sum {
	sums := map[string]sum{}
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		for k, v := range s.sum {
			sums[k.class] = sum{sums[k.class].count + v.count, sums[k.class].nanos + v.nanos}
		}
		s.mu.Unlock()
	}
	return sums
}
