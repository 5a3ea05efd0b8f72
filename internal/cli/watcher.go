package cli

import (
	"fmt"

	"btrlab/internal/transfer"
)

// watcher shows the progress of a transfer, and stops it after SIGINT.
type watcher struct {
	*app
	verb    string
	verbose bool
	bar     *bar
}

// Begin prints the name, or moves the bar.
func (w *watcher) Begin(name string, begun, known uint64) {
	if w.verbose {
		fmt.Fprintln(w.out, name)
	}
	w.bar.set(fmt.Sprintf("%s %d files", w.verb, begun), begun, known)
}

// LeaveOut prints a warning.
func (w *watcher) LeaveOut(x transfer.LeftOut) {
	if x.Subvol != 0 {
		fmt.Fprintf(w.err, "btrlab: %s: subvolume %d left out\n", x.Name, x.Subvol)
		return
	}
	fmt.Fprintf(w.err, "btrlab: %s: %s left out, want files, directories and links\n", x.Name, typeWord(x.Mode))
}

// Stop returns errInterrupted after SIGINT.
func (w *watcher) Stop() error { return w.interrupted() }
