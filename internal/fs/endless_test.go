package fs_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/policy"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/sched/vtime"
)

// TestEndlessTruncate: a truncate waits until i_dio_count is zero, and direct reads of 2018 count
// there without i_rwsem. Two readers, of which one always reads, keep it waiting for as long as
// they read: the endless truncate. Ko's second fix waits before the size changes and lets no new
// read begin without i_rwsem until it has (READDIO_NEED_LOCK), so the truncate waits for the reads
// in flight only. Difference: Linux 4.17 held reads back in its own order of the two as well; here
// a setsize does so only where the wait comes first.
func TestEndlessTruncate(t *testing.T) {
	const read = 50 * time.Millisecond // how long the readers go on
	for _, c := range []struct {
		policy  string
		endless bool
	}{{"locked", true}, {"unlocked", true}, {"unlocked-drain", false}, {"modern", false}} {
		var took time.Duration
		_, err := vtime.Run(vtime.Machine{CPUs: 4}, func(k *sched.Task) {
			p, err := dm.Parse("delay:read=1ms")
			if err != nil {
				t.Error(err)
				return
			}
			var dev blockdev.Device = blockdev.NewMemory(1 << 28)
			if err := mkfs.Make(k, dev, mkfs.Options{}); err != nil {
				t.Error(err)
				return
			}
			slow := dm.New(k, dev, p)
			x, err := fs.Open(k, []blockdev.Device{slow}, fs.Options{Policy: policy.MustParse(c.policy)})
			if err != nil {
				t.Error(err)
				return
			}
			f, err := x.Create(k, "/f", 0o644)
			if err == nil {
				err = f.SetFlags(k, format.InodeNoDataCow)
			}
			if err == nil {
				_, err = f.WriteAt(k, make([]byte, 64<<10), 0)
			}
			if err == nil {
				err = f.Fsync(k)
			}
			if err != nil {
				t.Error(err)
				return
			}
			end := k.Now() + int64(read)
			var all []*sched.Task
			for i := range 2 {
				all = append(all, k.Go(fmt.Sprint("reader", i), func(k *sched.Task) {
					k.Sleep(time.Duration(i) * 500 * time.Microsecond) // half a read apart
					for k.Now() < end {
						if _, err := f.ReadDirect(k, make([]byte, 4096), 0); err != nil {
							t.Error(err)
							return
						}
					}
				}))
			}
			k.Sleep(2 * time.Millisecond)
			at := k.Now()
			if err := f.Truncate(k, 32<<10); err != nil {
				t.Error(err)
			}
			took = time.Duration(k.Now() - at)
			for _, w := range all {
				k.Join(w)
			}
			if err := errors.Join(x.Close(k), slow.Close()); err != nil {
				t.Error(err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if endless := took > read/2; endless != c.endless {
			t.Errorf("%s: the truncate took %v of the %v for which the readers read, endless %v want %v", c.policy, took, read, endless, c.endless)
		}
		t.Logf("%s: %v", c.policy, took)
	}
}
