package volumes

import (
	"bytes"
	"fmt"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

// TestRecoverySchedules: a reader without the device of one unit of a row, and a writer of the
// other one. The unit is what it was, in every schedule: a recovery sees no row that is written in
// part.
func TestRecoverySchedules(t *testing.T) {
	r := explore.Run(explore.Config{Method: explore.Bound, Preemptions: 3, Schedules: 20000}, func(w *explore.World) {
		v, k := rowOfThree(w)
		tk := w.Task()
		old := bytes.Repeat([]byte{0x33}, format.SectorSize)
		if err := v.Write(tk, old, k.Logical); err != nil {
			panic(err)
		}
		lost := k.devs[0]
		lost.Device, lost.missing = absent{lost.Devid()}, true
		w.Go("writer", func(t *sched.Task) {
			if err := v.Write(t, make([]byte, format.SectorSize), k.Logical+format.StripeLen); err != nil {
				panic(err)
			}
			if err := v.Write(t, bytes.Repeat([]byte{0x44}, format.SectorSize), k.Logical+format.StripeLen); err != nil {
				panic(err)
			}
		})
		w.Go("reader", func(t *sched.Task) {
			p := make([]byte, format.SectorSize)
			if err := v.Read(t, p, k.Logical, 1); err != nil || !bytes.Equal(p, old) {
				panic(fmt.Sprintf("have %#x want %#x, %v", p[0], old[0], err))
			}
		})
	})
	if r.Verdict == explore.Violated || r.Schedules < 100 || r.Schedules >= 20000 {
		t.Errorf("have verdict %v after %d executions, %+v", r.Verdict, r.Schedules, r.Violation)
	}
}

// rowOfThree is a chunk of RAID5 on three devices.
func rowOfThree(w *explore.World) (v *Volumes, k ChunkInfo) {
	var members []Member
	for i := range 3 {
		d := blockdev.NewMemory(8 * mib)
		sb := super(8 * mib)
		sb.NumDevices, sb.DevItem.Devid, sb.DevItem.UUID = 3, uint64(i+1), format.UUID{7 + byte(i)}
		members = append(members, Member{d, sb})
	}
	v, err := Open(members, false)
	if err == nil {
		k, err = v.AllocChunk(w.Task(), format.BlockGroupData|format.BlockGroupRAID5, mib)
	}
	if err != nil {
		panic(err)
	}
	return v, k
}
