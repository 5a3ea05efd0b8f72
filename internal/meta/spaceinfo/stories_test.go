package spaceinfo

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"btrlab/internal/errno"
	"btrlab/internal/sched"
)

var rewrite = flag.Bool("rewrite", false, "rewrite testdata with what the code says")

// told is a world that writes down what it is asked for.
type told struct {
	*world
	asked []string
}

func (w *told) FlushDelalloc(t *sched.Task, bytes uint64, wait bool) {
	s := "delalloc"
	if wait {
		s = "all delalloc"
	}
	w.asked = append(w.asked, s)
	w.world.FlushDelalloc(t, bytes, wait)
}

func (w *told) CommitTransaction(t *sched.Task) error {
	w.asked = append(w.asked, "commit")
	return w.world.CommitTransaction(t)
}

func (w *told) AllocChunk(t *sched.Task, typ uint64) (bool, error) {
	w.asked = append(w.asked, "chunk")
	return w.world.AllocChunk(t, typ)
}

// TestStories reads testdata/stories.txt. A story is a line that says what it is about, then
// commands, then "----" and what the reserve commands answered: how, what the flusher was asked
// for, in order, and the account. The commands, in MiB:
//
//	device FREE CHUNK            what the device has left, and the size of a chunk
//	data|metadata TOTAL USED     the account
//	dirty N                      metadata promised for dirty data: writeback gives it back
//	inodes N                     metadata promised for inode items: a commit gives it back
//	pinned N                     of the used data, freed: a commit gives it back
//	global N                     the global reserve
//	ticket N                     a metadata reservation that waits
//	reserve data|metadata N MODE
func TestStories(t *testing.T) {
	const file = "testdata/stories.txt"
	in, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for i, story := range strings.Split(strings.TrimSpace(string(in)), "\n\n") {
		text, _, ok := strings.Cut(story, "\n----")
		if !ok {
			t.Fatalf("%s: story %d has no ----", file, i+1)
		}
		if i > 0 {
			out.WriteString("\n")
		}
		fmt.Fprintf(&out, "%s\n----\n%s", text, tell(t, strings.Split(text, "\n")[1:]))
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if out.String() != string(in) {
		t.Errorf("the stories differ from %s (-rewrite to accept):\n%s", file, out.String())
	}
}

// tell carries out the commands of a story and returns the answers.
func tell(t *testing.T, commands []string) string {
	task := sched.NewTask("test")
	w := &told{world: newWorld(task, 0, MiB)}
	w.s.SetFlushers(w)
	var out strings.Builder
	for _, c := range commands {
		f := strings.Fields(c)
		n := func(i int) uint64 {
			v, err := strconv.ParseUint(f[i], 10, 64)
			if err != nil {
				t.Fatalf("%s: %v", c, err)
			}
			return v * MiB
		}
		info := w.s.Metadata()
		if f[0] == "data" || f[1] == "data" {
			info = w.s.Data()
		}
		switch f[0] {
		case "device":
			w.device, w.chunk = n(1), n(2)
		case "data", "metadata":
			info.AddTotal(task, n(1), n(2), 0)
		case "dirty":
			w.dirty = n(1)
			promise(t, task, info, w.dirty)
		case "inodes":
			w.inodes = n(1)
			promise(t, task, info, w.inodes)
		case "pinned":
			w.pinned = n(1)
			w.s.Data().Freed(task, w.pinned)
		case "global":
			w.s.Global.Resize(task, n(1))
		case "ticket":
			info.tickets = append(info.tickets, &ticket{bytes: n(1)})
		case "reserve":
			mode := slices.Index(modeNames[:], f[3])
			if mode < 0 {
				t.Fatalf("%s: unknown mode", c)
			}
			w.asked = nil
			answer := "granted"
			if err := info.Reserve(task, n(2), FlushMode(mode)); errors.Is(err, errno.ENOSPC) {
				answer = "ENOSPC"
			} else if err != nil {
				t.Fatalf("%s: %v", c, err)
			}
			asked := "nothing"
			if len(w.asked) > 0 {
				asked = strings.Join(slices.Compact(w.asked), ", ")
			}
			u := info.Usage(task)
			fmt.Fprintf(&out, "%s %s: %s; asked for %s; may_use %d of %d, global %d, %d waiting\n", f[3], f[1], answer, asked,
				u.MayUse/MiB, u.Total/MiB, w.s.Global.Reserved(task)/MiB, len(info.tickets))
		default:
			t.Fatalf("unknown command %q", c)
		}
	}
	return out.String()
}

// promise is a promise that somebody got when there was room.
func promise(t *testing.T, task *sched.Task, i *Info, bytes uint64) {
	if err := i.Reserve(task, bytes, NoFlush); err != nil {
		t.Fatal(err)
	}
}
