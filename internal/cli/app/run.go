// Package app is one run of the program, as the verbs of all rooms of cli share it: its streams,
// the image that it opens or that is open already, and the request to stop. Beside it stand the
// values and the help of flags, errors with their exit codes, and what is printed while a verb
// works.
package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/spf13/cobra"

	"btrlab/internal/blockdev/dm"
	"btrlab/internal/measure/fio"
	"btrlab/internal/sched"
)

// Run is one run of the program: the streams that it reads and prints to, how it opens an image,
// and whether it was told to end.
type Run struct {
	Streams
	Opening
	Stopping
	Task *sched.Task
	Open *OpenImage // what verbs work on in sh, else nil
	// Session has the disks of a sh that may open several images; nil where each open is alone.
	Session *Session
	// Alias gives the words of this program for those of btrfs, guestfish and the shell.
	Alias func(words []string) []string
}

// New is a run with the streams.
func New(in io.Reader, out, errs io.Writer) *Run {
	return &Run{Streams: Streams{in, out, errs}, Stopping: Stopping{Stopped: make(chan struct{})}, Task: sched.NewTask("main"),
		Alias: func(words []string) []string { return words }}
}

// Beside is a run on an image that is open already, as a task of its own beside those that use it.
// What it waits for ends with a, and a line that it is in goes on to its end.
func (a *Run) Beside(task string, s Streams, open *OpenImage) *Run {
	return &Run{Streams: s, Stopping: Stopping{Stopped: a.Stopped}, Task: sched.NewTask(task), Open: open,
		Alias: a.Alias}
}

// Streams are the standard input and output, and standard error.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// Opening is how an image is opened, by the flags that many verbs have.
type Opening struct {
	Cache     ByteSize     // --cache; 0 is the default
	Faults    Faults       // --fault
	NoReplay  bool         // --no-log-replay
	Subvol    SubvolFlag   // --subvol
	Partition int          // --partition
	Offset    ByteSize     // --offset, or --image-offset
	Devices   []string     // --device
	Degraded  bool         // --degraded
	Model     string       // --device-model of mount and serve
	Live      bool         // the faults may change while the image is open
	Flakeys   []*dm.Flakey // with live, for each device
}

// Stopping is whether the run was told to end, by SIGINT, SIGTERM or SIGHUP.
type Stopping struct {
	Stop    atomic.Bool
	Stopped chan struct{} // closed when Stop becomes true
}

// End tells the run to end, and reports whether that is new.
func (s *Stopping) End() bool {
	if s.Stop.Swap(true) {
		return false
	}
	close(s.Stopped)
	return true
}

// Interrupted returns ErrInterrupted after SIGINT. Loops over files ask it between two files.
func (s *Stopping) Interrupted() error {
	if s.Stop.Load() {
		return ErrInterrupted
	}
	return nil
}

// InterruptedIn is Interrupted of a measurement: on an image what was written is committed, in
// memory there is only what was printed, of which made is the word.
func (s *Stopping) InterruptedIn(image string, made error) error {
	if image == "" && s.Stop.Load() {
		return made
	}
	return s.Interrupted()
}

// Context ends when parent does or SIGINT comes.
func (s *Stopping) Context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	go func() {
		select {
		case <-s.Stopped:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// Stdin is standard input for a verb's data.
func (a *Run) Stdin() io.Reader {
	if a.Open != nil && a.Open.Stdin {
		return ReadFunc(func([]byte) (int, error) { return 0, errors.New("standard input has the verbs, want them in a file") })
	}
	return a.Input()
}

// Input is standard input; a Read that waits for input ends with ErrInterrupted when SIGINT comes.
func (a *Run) Input() io.Reader {
	type chunk struct {
		b   []byte
		err error
	}
	chunks := make(chan chunk)
	go func() {
		for {
			b := make([]byte, 64<<10)
			n, err := a.In.Read(b)
			select {
			case chunks <- chunk{b[:n], err}:
			case <-a.Stopped:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	var c chunk
	return ReadFunc(func(p []byte) (int, error) {
		for len(c.b) == 0 {
			if c.err != nil {
				return 0, c.err
			}
			select {
			case c = <-chunks:
			case <-a.Stopped:
				return 0, ErrInterrupted
			}
		}
		n := copy(p, c.b)
		c.b = c.b[n:]
		return n, nil
	})
}

// ReadFunc is a reader that is one function.
type ReadFunc func(p []byte) (int, error)

func (f ReadFunc) Read(p []byte) (int, error) { return f(p) }

// PrintJSON writes v as indented JSON.
func (a *Run) PrintJSON(v any) error {
	if a.Open != nil && a.Open.JSON {
		a.Open.Result = v
		return nil
	}
	e := json.NewEncoder(a.Out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// JSONFlag adds --json to cmd.
func JSONFlag(cmd *cobra.Command, v *bool) {
	cmd.Flags().BoolVar(v, "json", false, "print the result as JSON")
}

// ReadJob reads the fio job of a file, or with the path - of standard input.
func (a *Run) ReadJob(x fio.Syntax, path string) (*fio.JobFile, error) {
	if path == "-" {
		return x.Parse("standard input", a.Stdin())
	}
	return x.ParseFile(path)
}

// Note prints a note: one line on standard error.
func (a *Run) Note(s string) { fmt.Fprintln(a.Err, "btrlab: note:", Shown(a.Err, s)) }
