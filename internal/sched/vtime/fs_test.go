package vtime_test

import (
	"fmt"
	"math/rand/v2"
	"os"
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

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

func overwrite(m vtime.Machine, pol string, tasks, writes int, model string) (vtime.Stats, error) {
	var out error
	st, err := vtime.Run(m, func(t *sched.Task) {
		dev := blockdev.Device(blockdev.NewMemory(1 << 30))
		if err := mkfs.Make(t, dev, mkfs.Options{}); err != nil {
			out = err
			return
		}
		if model != "" {
			p, _ := dm.Parse(model)
			dev = dm.New(t, dev, p)
		}
		x, err := fs.Open(t, []blockdev.Device{dev}, fs.Options{Policy: policy.MustParse(pol)})
		if err != nil {
			out = err
			return
		}
		const size = 64 << 20
		f, err := x.Create(t, "/f", 0o644)
		if err == nil {
			err = f.SetFlags(t, format.InodeNoDataCow)
		}
		if err == nil {
			err = f.Fallocate(t, 0, 0, size)
		}
		var ks []*sched.Task
		for i := range tasks {
			ks = append(ks, t.Go(fmt.Sprint("w", i), func(t *sched.Task) {
				r := rand.New(rand.NewPCG(1, uint64(i)))
				p := make([]byte, 4096)
				for range writes {
					if _, err := f.WriteAt(t, p, int64(r.IntN(size/4096))*4096); err != nil {
						out = err
						return
					}
				}
			}))
		}
		for _, k := range ks {
			t.Join(k)
		}
		if err == nil {
			err = f.Close(t)
		}
		if err == nil {
			err = x.Close(t)
		}
		if err == nil {
			err = dev.Close()
		}
		if out == nil {
			out = err
		}
	})
	if out == nil {
		out = err
	}
	return st, out
}

func TestOverwrite(t *testing.T) {
	for _, model := range []string{"", "ssd-raid5"} {
		a := time.Now()
		st, err := overwrite(vtime.Machine{CPUs: 8, Checked: true}, "locked", 8, 5000, model)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%v %+v", time.Since(a), st)
		st2, err := overwrite(vtime.Machine{CPUs: 8, Checked: true}, "locked", 8, 5000, model)
		if err != nil || st != st2 {
			t.Fatalf("%v\n%+v\n%+v", err, st, st2)
		}
	}
}
