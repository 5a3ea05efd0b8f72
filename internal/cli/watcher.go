package cli

import (
	"errors"
	"fmt"
	iofs "io/fs"

	"btrlab/internal/prose"
	"btrlab/internal/transfer"
)

// watcher shows the progress of a transfer, and stops it after SIGINT.
type watcher struct {
	*app
	verb    string
	verbose bool
	bar     *bar
	image   string // of get, for what is left out; empty for put, which names what is on the host
	left    int    // objects that are left out
}

// Begin prints the name, or moves the bar.
func (w *watcher) Begin(name string, begun, known uint64) {
	if w.verbose {
		fmt.Fprintln(w.out, shown(w.out, name))
	}
	w.bar.set(fmt.Sprintf("%s %d files", w.verb, begun), begun, known)
}

// LeaveOut prints what and why.
func (w *watcher) LeaveOut(x transfer.LeftOut) {
	switch {
	case x.Snapshot:
		fmt.Fprintf(w.err, "btrlab: note: %s is a snapshot, want --snapshots to copy it\n", shown(w.err, x.Name))
		return
	case x.Err != nil:
		err := x.Err
		var host *iofs.PathError
		switch {
		case w.image != "":
			err = inImage(w.image, x.Name, err)
		case !errors.As(err, &host) || host.Path != x.Name:
			err = fmt.Errorf("%s: %w", x.Name, err)
		}
		fmt.Fprintf(w.err, "btrlab: left out: %s\n", shown(w.err, oneLine(err)))
	default:
		fmt.Fprintf(w.err, "btrlab: %s: %s left out, want files, directories and links\n", shown(w.err, x.Name), typeWord(x.Mode))
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

// Stop returns errInterrupted after SIGINT.
func (w *watcher) Stop() error { return w.interrupted() }
