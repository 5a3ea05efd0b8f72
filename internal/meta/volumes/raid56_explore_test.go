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

// twoOfARow is the program: RAID5 on three devices.
func twoOfARow(w *explore.World, unlocked bool) {
	tk := w.Task()
	var members []Member
	var devs []*blockdev.Memory
	for i := range 3 {
		d := blockdev.NewMemory(8 * mib)
		sb := super(8 * mib)
		sb.NumDevices, sb.DevItem.Devid, sb.DevItem.UUID = 3, uint64(i+1), format.UUID{7 + byte(i)}
		members, devs = append(members, Member{d, sb}), append(devs, d)
	}
	v, err := Open(members, false)
	if err != nil {
		panic(err)
	}
	v.stripes.unlocked = unlocked
	k, err := v.AllocChunk(tk, format.BlockGroupData|format.BlockGroupRAID5, mib)
	if err != nil {
		panic(err)
	}
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
