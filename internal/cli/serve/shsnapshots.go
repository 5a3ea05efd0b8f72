package serve

import (
	"errors"
	gopath "path"
	"slices"

	"btrlab/internal/cli/app"
	"btrlab/internal/fs"
	"btrlab/internal/sched"
	"btrlab/internal/script"
)

// snapshots are those of the last lines of sh, of one subvolume into one directory: one commit
// makes them, where one for each would wait for the device twice. Nobody sees the difference: they
// are made before another verb runs and before more lines are waited for. Nil never has one.
type snapshots struct {
	t   *sched.Task
	now int // the line at hand
	end func(n int, err error) bool

	x           *fs.FS
	image, from string
	readOnly    bool
	paths       []string
	lines       []int
}

// snapshotsMax is how many snapshots wait. What they dirty is in memory until the commit.
const snapshotsMax = 500

// errWaits is of a line that is done with those after it.
var errWaits = errors.New("waits for the next lines")

// Add is app.Snapshots.
func (b *snapshots) Add(x *fs.FS, image, from, to string, readOnly bool) error {
	to = gopath.Clean(to)
	if len(b.paths) > 0 && (x != b.x || from != b.from || readOnly != b.readOnly || !b.beside(to) || len(b.paths) == snapshotsMax) {
		if b.flush() {
			return errWaits
		}
	}
	if from != "/" {
		into := script.IntoDir(b.t, x, from, to)
		if into != to && len(b.paths) > 0 && b.flush() {
			return errWaits
		}
		to = into
	}
	b.x, b.image, b.from, b.readOnly = x, image, from, readOnly
	b.paths, b.lines = append(b.paths, to), append(b.lines, b.now)
	return errWaits
}

// beside reports whether the path is in the directory of those that wait, and none of them.
func (b *snapshots) beside(path string) bool {
	return gopath.Dir(path) == gopath.Dir(b.paths[0]) && !slices.Contains(b.paths, path)
}

// line says which line is at hand.
func (b *snapshots) line(n int) {
	if b != nil {
		b.now = n
	}
}

// tell sets who is told of each line's end, and answers whether that ends the run.
func (b *snapshots) tell(end func(n int, err error) (over bool)) {
	if b != nil {
		b.end = end
	}
}

// flush makes the snapshots that wait. It reports whether one has ended the run.
func (b *snapshots) flush() (over bool) {
	if b == nil {
		return false
	}
	for len(b.paths) > 0 {
		made, err := b.x.Snapshots(b.t, b.from, b.paths, b.readOnly)
		for _, n := range b.lines[:made] {
			b.end(n, nil)
		}
		if err != nil {
			over = b.end(b.lines[made], app.InImage(b.image, b.paths[made], err))
			made++
		}
		if over {
			made = len(b.paths)
		}
		b.paths, b.lines = b.paths[made:], b.lines[made:]
	}
	return over
}
