package progs

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/interop"
)

// df --devices prints the table of btrfs filesystem usage -T, of each profile, and of several at
// once: the same names and numbers in each row, but for the paths.
func TestUsageTable(t *testing.T) {
	interop.Linux(t)
	for _, p := range []struct {
		n     int
		flags []string
		also  []string // a balance on the mount
	}{
		{1, []string{"-m", "dup", "-d", "single"}, nil},
		{1, []string{"--mixed"}, nil},
		{2, []string{"-m", "raid1", "-d", "raid0"}, nil},
		{3, []string{"-m", "raid1c3", "-d", "raid1"}, []string{"-dconvert=raid0,limit=1"}},
		{4, []string{"-m", "raid10", "-d", "raid6"}, nil},
		{3, []string{"-m", "raid1", "-d", "raid5"}, nil},
		{2, []string{"-m", "raid1", "-d", "single"}, []string{"-dconvert=raid1,limit=1"}},
	} {
		a := newArray(t, p.n)
		a.attachedTo(t, func(loops []string) {
			interop.Sh(t, "mkfs.btrfs", append(append([]string{"-q", "-f"}, p.flags...), loops...)...)
		})
		interop.Sh(t, "truncate", "-s", "300M", a[0]) // its end is slack
		var theirs string
		a.mounted(t, func(dir string) {
			interop.Tree(t, filepath.Join(dir, "tree"), 5, 60)
			interop.Sh(t, "sh", "-c", "head -c 40000000 /dev/urandom > "+dir+"/big; sync")
			if p.also != nil {
				interop.Sh(t, "btrfs", append(append([]string{"balance", "start"}, p.also...), dir)...)
			}
			_ = exec.Command("sync", "-f", dir).Run()
		})
		a.mounted(t, func(dir string) { theirs = interop.Sh(t, "btrfs", "filesystem", "usage", "-T", "-b", dir) })
		_, table, _ := strings.Cut(theirs, "Multiple profiles:")
		_, table, _ = strings.Cut(table, "\n")
		want, have := tableOf(table), tableOf(interop.Btrlab(t, a.verb("", "df", "--devices", "-b")...))
		if !slices.EqualFunc(want, have, slices.Equal) || len(have) != p.n+6 {
			t.Errorf("%v: have\n%v\nwant\n%v\n%s", p.flags, have, want, theirs)
		}
	}
}

// tableOf is the words of each line, without paths and lines of dashes of their width.
func tableOf(text string) (rows [][]string) {
	for line := range strings.Lines(strings.Trim(text, "\n")) {
		var row []string
		for _, w := range strings.Fields(line) {
			switch {
			case strings.Contains(w, "/"):
				w = "path"
			case strings.HasPrefix(w, "--"):
				w = "--"
			}
			row = append(row, w)
		}
		rows = append(rows, row)
	}
	return rows
}
