package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"btrlab/internal/blockdev/dm"
	"btrlab/internal/cli/app"
	"btrlab/internal/fs"
	"btrlab/internal/mount"
	"btrlab/internal/sched"
)

// sh --at: the server of a mounted image listens on a socket of its own, and runs the lines that
// come in, each with a task of its own beside the requests of the kernel. What the lines change the
// kernel does not know, so it is told.

// atLine is a line for the server, and atAnswer what came of it.
type atLine struct {
	Line int
	Text string
	JSON bool
}

type atAnswer struct {
	Out, Err []byte
	Error    string // of the line; empty is none
	Quit     bool
}

// liveImage is an image that is mounted while lines run on it.
type liveImage struct {
	name    string
	fs      *fs.FS
	m       *mount.Mount
	flakeys []*dm.Flakey
}

// frozenVerbs run while no request of the kernel is under way: those that look at the devices, and
// those that change how requests are served.
var frozenVerbs = map[string]bool{"check": true, "scrub": true, "dump": true, "policy": true, "quota": true, "fault": true, "crash": true}

// hostVerbs read or write the host, which the mount does for every program.
var hostVerbs = map[string]bool{"cp": true, "put": true, "get": true, "cat": true, "write": true, "send": true, "receive": true}

// serveAt answers the clients of l until stop, which returns when the last line has ended.
func (a verbs) serveAt(l net.Listener, live *liveImage) (stop func()) {
	var mu sync.Mutex // protects the two below
	conns := map[net.Conn]bool{}
	stopped := false
	var clients sync.WaitGroup
	clients.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			if stopped {
				c.Close()
			} else {
				conns[c] = true
				clients.Go(func() {
					a.answerAt(c, live)
					c.Close()
					mu.Lock()
					delete(conns, c)
					mu.Unlock()
				})
			}
			mu.Unlock()
		}
	})
	return func() {
		l.Close()
		mu.Lock()
		stopped = true
		for c := range conns {
			c.Close() // the client's line under way ends, and no further one is read
		}
		mu.Unlock()
		clients.Wait()
	}
}

// answerAt runs the lines of one client.
func (a verbs) answerAt(c net.Conn, live *liveImage) {
	var out, errs bytes.Buffer
	b := verbs{onOpen: a.onOpen, live: live}
	b.Run = a.Beside("sh", app.Streams{In: strings.NewReader(""), Out: &out, Err: &errs}, &app.OpenImage{Name: live.name, Devs: live.fs.Devices(), FS: live.fs})
	b.Flakeys = live.flakeys
	in, answers := json.NewDecoder(c), json.NewEncoder(c)
	for {
		var l atLine
		if err := in.Decode(&l); err != nil {
			return
		}
		out.Reset()
		errs.Reset()
		b.Open.JSON = l.JSON
		err := b.line(l.Line, l.Text, nil)
		answer := atAnswer{Out: out.Bytes(), Err: errs.Bytes(), Quit: errors.Is(err, errQuit)}
		crash := errors.Is(err, errCrash)
		if err != nil && !answer.Quit && !crash {
			answer.Error = app.OneLine(err)
		}
		if err := answers.Encode(answer); err != nil && !crash {
			return
		}
		if crash {
			c.Close()
			os.Exit(exitCrashed)
		}
	}
}

// around runs a verb of a line, do, beside the requests of the kernel or while there are none, and
// tells the kernel what it may have changed.
func (live *liveImage) around(t *sched.Task, words []string, do func() error) error {
	if hostVerbs[words[0]] {
		return fmt.Errorf("%s: the image is mounted, want cp, cat or dd on the mount", words[0])
	}
	if frozenVerbs[words[0]] {
		return live.m.Frozen(do)
	}
	if len(words) > 2 && words[0] == "subvolume" && words[1] == "delete" {
		for _, w := range words[2:] {
			live.m.Forget(t, w)
		}
	}
	err := do()
	for _, w := range words[1:] {
		if strings.HasPrefix(w, "/") {
			live.m.Changed(t, w)
		}
	}
	return err
}

// runAt sends the lines of in to the server of the image that is mounted at dir.
func (a verbs) runAt(dir string, in io.Reader, name string, o shFlags) error {
	c, err := dialAt(dir)
	if err != nil {
		return app.Named(dir, err)
	}
	defer c.Close()
	lines, answers := json.NewEncoder(c), json.NewDecoder(c)
	return a.lines(in, name, dir, o, nil, func(n int, text string) error {
		var r atAnswer
		err := lines.Encode(atLine{n, text, o.json})
		if err == nil {
			err = answers.Decode(&r)
		}
		if err != nil && strings.TrimSpace(text) == "crash" {
			return errQuit
		}
		if err != nil {
			return app.Named(dir, errGone)
		}
		_, werr := a.Out.Write(r.Out)
		_, eerr := a.Err.Write(r.Err)
		switch {
		case werr != nil || eerr != nil:
			return errors.Join(werr, eerr)
		case r.Quit:
			return errQuit
		case r.Error != "":
			return errors.New(r.Error)
		}
		return nil
	})
}

// errGone ends sh --at.
var errGone = errors.New("the server of the mount is gone")

// errCrash ends the server of a mounted image as SIGKILL would.
var errCrash = errors.New("crash")

// exitCrashed is the exit code of a program that SIGKILL ended, as a shell has it.
const exitCrashed = 137

// faultVerb shows or changes the faults of the device.
func (a verbs) faultVerb() *cobra.Command {
	cmd := &cobra.Command{Use: "fault [KIND:OP:N...|none]", Short: "let the Nth read, write or flush from now on fail, or with N+ all from it on",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				for _, f := range a.Flakeys {
					fmt.Fprintf(a.Out, "%s: %d failed\n", f.Name(), f.Failed())
				}
				return nil
			}
			var list []dm.Fault
			for _, s := range args {
				if s == "none" {
					continue
				}
				f, err := dm.ParseFault(s)
				if err != nil {
					return app.Usagef(cmd, "%v, or none", err)
				}
				list = append(list, f)
			}
			for _, dev := range a.Flakeys {
				from := slices.Clone(list)
				for i := range from {
					from[i].Nth += dev.Count(from[i].Op)
				}
				dev.Set(from...)
			}
			return nil
		}}
	return cmd
}

// crashVerb ends the server.
func (a verbs) crashVerb() *cobra.Command {
	return &cobra.Command{Use: "crash", Short: "end the server as a kill -9 would: the last commit stays, and the log of the fsyncs after it",
		Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error { return errCrash }}
}
