package image

import (
	"errors"
	"fmt"
	iofs "io/fs"

	"btrlab/internal/cli/app"
	"btrlab/internal/prose"
	"btrlab/internal/transfer"
)

// watcher shows the progress of a transfer, and stops it after SIGINT.
type watcher struct {
	verbs
	verb    string
	verbose bool
	bar     *app.Bar
	image   string // of get, for what is left out; empty for put, which names what is on the host
	left    int    // objects that are left out
}

// Begin prints the name, or moves the bar.
func (w *watcher) Begin(name string, begun, known uint64) {
	if w.verbose {
		fmt.Fprintln(w.Out, app.Shown(w.Out, name))
	}
	w.bar.Set(fmt.Sprintf("%s %d files", w.verb, begun), begun, known)
}

// LeaveOut prints what and why.
func (w *watcher) LeaveOut(x transfer.LeftOut) {
	switch {
	case x.Snapshot:
		fmt.Fprintf(w.Err, "btrlab: note: %s is a snapshot, want --snapshots to copy it\n", app.Shown(w.Err, x.Name))
		return
	case x.Err != nil:
		err := x.Err
		var host *iofs.PathError
		switch {
		case w.image != "":
			err = app.InImage(w.image, x.Name, err)
		case !errors.As(err, &host) || host.Path != x.Name:
			err = fmt.Errorf("%s: %w", x.Name, err)
		}
		fmt.Fprintf(w.Err, "btrlab: left out: %s\n", app.Shown(w.Err, app.OneLine(err)))
	default:
		fmt.Fprintf(w.Err, "btrlab: %s: %s left out, want files, directories and links\n", app.Shown(w.Err, x.Name), typeWord(x.Mode))
	}
	w.left++
}

// allThere is the error when something was left out.
func (w *watcher) allThere() error {
	if w.left == 0 {
		return nil
	}
	return fmt.Errorf("%s left out", prose.Count(w.left, "object"))
}

// Stop returns ErrInterrupted after SIGINT.
func (w *watcher) Stop() error { return w.Interrupted() }
