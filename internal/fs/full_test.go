package fs_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"btrlab/internal/errno"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
	"btrlab/internal/testing/need"
)

// TestDeleteWhenFull: on an image without room for metadata names can be taken and files be
// emptied, because deletes may use what is kept for commits; otherwise nobody could ever make room.
// What they freed can be used again, also after a new open.
func TestDeleteWhenFull(t *testing.T) {
	need.Long(t)
	fstest.OneTask(t)
	for _, how := range []string{"unlink", "rmdir", "truncate", "reopen"} {
		t.Run(how, func(t *testing.T) {
			if sched.UnderRace && how != "unlink" {
				t.Skip("the flusher and the commits that race are those of unlink; make test runs the others")
			}
			x := fstest.New(t, fstest.Size(64<<20))
			name := func(i int) string { return fmt.Sprintf("/%s%06d", strings.Repeat("n", 200), i) }
			inline := make([]byte, 2000)
			files := 0
			fill := func() error {
				for {
					if how == "rmdir" {
						if err := x.FS.Mkdir(x.T, name(files), 0o755); err != nil {
							return err
						}
					} else {
						f, err := x.FS.Create(x.T, name(files), 0o644)
						if err != nil {
							return err
						}
						_, err = f.WriteAt(x.T, inline, 0)
						x.Must(f.Close(x.T))
						if err != nil {
							x.Must(x.FS.Unlink(x.T, name(files)))
							return err
						}
					}
					files++
				}
			}
			// The first ENOSPC comes while promises are out; after a sync a little more fits.
			for last := -1; last != files; {
				last = files
				if err := fill(); !errors.Is(err, errno.ENOSPC) {
					t.Fatalf("filling: %d files, have %v want ENOSPC", files, err)
				}
				x.Must(x.FS.Sync(x.T))
			}
			full := files
			if how == "reopen" {
				x.Reopen()
			}
			for i := range full / 2 {
				var err error
				switch how {
				case "rmdir":
					err = x.FS.Rmdir(x.T, name(i))
				case "truncate":
					f, e := x.FS.Create(x.T, name(i), 0o644)
					if err = e; err == nil {
						x.Must(f.Close(x.T))
					}
				default:
					err = x.FS.Unlink(x.T, name(i))
				}
				if err != nil {
					t.Fatalf("%s %d of %d: %v", how, i, full, err)
				}
			}
			x.Must(x.FS.Sync(x.T))
			if err := fill(); !errors.Is(err, errno.ENOSPC) || files-full < full/8 {
				t.Errorf("%s: %d files fit, after half of them went %d more, %v", how, full, files-full, err)
			}
		})
	}
}
