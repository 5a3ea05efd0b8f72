package volumes

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

// TestStripeLockSchedules: two writers of different data units of one row, each of whom reads the
// other's unit and writes P. With the stripe lock no schedule leaves a parity that is not the
// data's. Without it one does: both read the old unit, and the P that is written last has one new
// unit only. Nothing shows this while all devices are there; the other unit is lost with the next
// device that fails.
func TestStripeLockSchedules(t *testing.T) {
	for _, unlocked := range []bool{false, true} {
		r := explore.Run(explore.Config{Method: explore.Bound, Preemptions: 3, Schedules: 20000}, func(w *explore.World) { twoOfARow(w, unlocked) })
		if unlocked != (r.Verdict == explore.Violated) {
			t.Errorf("unlocked %v: have verdict %v after %d executions, %+v", unlocked, r.Verdict, r.Schedules, r.Violation)
		}
		if !unlocked && (r.Schedules < 100 || r.Schedules >= 20000) {
			t.Errorf("have %d executions, want more than 100 and all of them", r.Schedules)
		}
		if text := fmt.Sprint(r.Violation); unlocked && !strings.Contains(text, "parity of the row is") {
			t.Errorf("have violation %s, want one of parity", text)
		}
	}
}

// TestRecoverySchedules: a reader without the device of one unit of a row, and a writer of the
// other one. The unit is what it was, in every schedule: a recovery sees no row that is written in
// part.
func TestRecoverySchedules(t *testing.T) {
	r := explore.Run(explore.Config{Method: explore.Bound, Preemptions: 3, Schedules: 20000}, func(w *explore.World) {
		v, k, _ := rowOfThree(w)
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
func rowOfThree(w *explore.World) (v *Volumes, k ChunkInfo, devs []*blockdev.Memory) {
	var members []Member
	for i := range 3 {
		d := blockdev.NewMemory(8 * mib)
		sb := super(8 * mib)
		sb.NumDevices, sb.DevItem.Devid, sb.DevItem.UUID = 3, uint64(i+1), format.UUID{7 + byte(i)}
		members, devs = append(members, Member{d, sb}), append(devs, d)
	}
	v, err := Open(members, false)
	if err == nil {
		k, err = v.AllocChunk(w.Task(), format.BlockGroupData|format.BlockGroupRAID5, mib)
	}
	if err != nil {
		panic(err)
	}
	return v, k, devs
}

// twoOfARow is two writers of one row.
func twoOfARow(w *explore.World, unlocked bool) {
	v, k, devs := rowOfThree(w)
	v.stripes.unlocked = unlocked
	for i := range 2 {
		w.Go(fmt.Sprint("writer ", "AB"[i:i+1]), func(t *sched.Task) {
			p := bytes.Repeat([]byte{byte(0x10 << i)}, format.SectorSize)
			if err := v.Write(t, p, k.Logical+uint64(i)*format.StripeLen); err != nil {
				panic(err)
			}
		})
	}
	w.Finally(func(t *sched.Task) error {
		var have [3]byte
		for i, s := range k.Chunk.Stripes {
			p := make([]byte, 1)
			if err := blockdev.Read(t, devs[s.Devid-1], p, int64(s.Offset)); err != nil {
				return err
			}
			have[i] = p[0]
		}
		if have[2] != have[0]^have[1] {
			return fmt.Errorf("parity of the row is %#x, want %#x", have[2], have[0]^have[1])
		}
		return nil
	})
}
