package repair

import (
	"fmt"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/check"
	"btrlab/internal/progs/image"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
)

// parityRow is the row of an image of RAID5 or RAID6 that has the bytes at logical: data, P, Q.
func parityRow(ch *check.Chunk, logical uint64) (row []image.Stripe) {
	m := mapped(ch)
	at := m.Profile.Locate(len(m.Stripes), m.Length, logical-m.Start)
	for i := range m.Stripes {
		s := m.Stripes[format.RowStripe(len(m.Stripes), at.Row, i)]
		s.Off += at.Off
		row = append(row, s)
	}
	return row
}

// TestParityMended: any units of a row that are bad, as many as the profile bears, are put right,
// be they data, tree blocks, P or Q: check, which compares data with its checksums and parity with
// its data, finds nothing any more. With one more the parity is left as it is.
func TestParityMended(t *testing.T) {
	for name, n := range map[string]int{"raid5": 3, "raid6": 4} {
		tk := sched.NewTask("repair")
		var devs []*blockdev.Memory
		for i := range n {
			devs = append(devs, fstest.Load(t, tk, fmt.Sprintf("../../fs/testdata/%s-%d.blocks.gz", name, i+1)).(*blockdev.Memory))
		}
		list := func(f func(d *blockdev.Memory) *blockdev.Memory) (out []blockdev.Device) {
			for _, d := range devs {
				out = append(out, f(d))
			}
			return out
		}
		same := func(d *blockdev.Memory) *blockdev.Memory { return d }
		_, seen, err := check.Examine(tk, devs[0], check.Options{Devices: list(same)[1:]})
		if err != nil || len(seen.Findings) > 0 {
			t.Fatal(err, seen.Findings)
		}
		bears := n - 2
		for what, logical := range map[string]uint64{"data": seen.Data[0].Bytenr, "a tree block": seen.Super.Root, "the chunk tree": seen.Super.ChunkRoot} {
			row := parityRow(seen.ChunkAt(logical), logical)
			for bits := 1; bits < 1<<n; bits++ {
				bad := 0
				images := list((*blockdev.Memory).Snapshot)
				for i, s := range row {
					if bits>>i&1 == 0 {
						continue
					}
					bad++
					p := make([]byte, 1)
					k := s.Dev.ID - 1
					off := int64(s.Off) + 77
					if err := blockdev.Read(tk, images[k], p, off); err != nil {
						t.Fatal(err)
					}
					p[0] ^= []byte{0x01, 0x16, 0x5b, 0xc7}[i] // they do not cancel out
					if err := blockdev.Write(tk, images[k], p, off); err != nil {
						t.Fatal(err)
					}
				}
				r, err := Propose(tk, images[0], check.Options{Devices: images[1:]})
				if err != nil {
					t.Fatal(err)
				}
				where := fmt.Sprintf("%s: %s, units %b", name, what, bits)
				if bad > bears {
					if bits&1 != 0 && r.After.Clean {
						t.Errorf("%s: clean, although nothing makes the data: %v", where, r.Done)
					}
					if what == "data" && bits&1 != 0 && len(r.Done) > 0 {
						t.Errorf("%s: have %v done, want nothing", where, r.Done)
					}
					continue
				}
				if !r.After.Clean {
					t.Errorf("%s: have %v, left %v", where, r.After.Findings, r.Left)
				}
			}
		}
	}
}
