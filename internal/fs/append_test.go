package fs_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/fs"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
)

// TestAppend: tasks that append to one file lose no record and mix none, under every policy: the
// end of the file is taken under the lock, not where the write begins. The offset that they give
// does not count.
func TestAppend(t *testing.T) {
	const tasks, records = 4, 200
	for _, name := range policy.Names() {
		t.Run(name, func(t *testing.T) {
			x := fstest.New(t, fstest.Policy(name))
			x.Must(x.Create("/log").Close(x.T))
			var want []string
			for i := range tasks * records {
				want = append(want, fmt.Sprintf("%0*d", 1+i%50, i))
			}
			fstest.Parallel(x.T, tasks, func(tk *sched.Task, i int) {
				f, err := x.FS.OpenFile(tk, "/log", fs.O_RDWR|fs.O_APPEND, 0)
				if err != nil {
					t.Error(err)
					return
				}
				for _, r := range want[i*records : (i+1)*records] {
					if _, err := f.WriteAt(tk, []byte(r+"\n"), 1<<40); err != nil {
						t.Error(err)
					}
				}
				if err := f.Close(tk); err != nil {
					t.Error(err)
				}
			})
			have := strings.Fields(string(x.ReadFile("/log")))
			slices.Sort(have)
			slices.Sort(want)
			if !slices.Equal(have, want) {
				t.Errorf("have %d records, want the %d that were written", len(have), len(want))
			}
		})
	}
}
