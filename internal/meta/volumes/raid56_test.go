package volumes

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// array is a chunk with parity on devices of its own, and the bytes that it should have.
type array struct {
	t    *testing.T
	tk   *sched.Task
	v    *Volumes
	devs []*fakeDevice
	k    ChunkInfo
	want []byte
}

// newArray makes a chunk of rows rows or more on n devices, with other bytes than zeros everywhere.
func newArray(t *testing.T, profile uint64, n, rows int) *array {
	t.Helper()
	a := &array{t: t, tk: sched.NewTask("test")}
	var sizes []uint64
	for range n {
		sizes = append(sizes, 8*mib)
	}
	a.v, a.devs = several(t, sizes...)
	data := format.ProfileOf(profile).DataStripes(n)
	rows = max(rows, (minChunk/format.StripeLen+data-1)/data)
	k, err := a.v.AllocChunk(a.tk, format.BlockGroupData|profile, uint64(data*rows*format.StripeLen))
	if err != nil {
		t.Fatal(err)
	}
	a.k = k
	a.want = make([]byte, k.Chunk.Length)
	rng := rand.New(rand.NewPCG(7, uint64(n)))
	for i := range a.want {
		a.want[i] = byte(rng.Uint32())
	}
	a.must(a.v.Write(a.tk, a.want, k.Logical))
	return a
}

func (a *array) must(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

// lose takes devices away, as a mount without them.
func (a *array) lose(lost ...int) {
	for _, i := range lost {
		d := a.v.devices[i]
		d.Device, d.missing = absent{d.Devid()}, true
	}
}

// replace makes what a lost device has missed anew.
func (a *array) replace(lost int) {
	a.t.Helper()
	for i := range a.k.devs {
		for off := uint64(0); a.k.devs[i] == a.v.devices[lost] && off < a.k.Chunk.StripeBytes(); off += format.StripeLen {
			a.must(a.v.copyPart(a.tk, &a.k, i, off, format.StripeLen, a.devs[lost]))
		}
	}
}

// find gives the devices back, with what is on them.
func (a *array) find() {
	for i, d := range a.v.devices {
		d.Device, d.missing = a.devs[i], false
	}
}

// write writes sectors of the chunk.
func (a *array) write(at, n int, with byte) error {
	p := make([]byte, n*format.SectorSize)
	for i := range p {
		p[i] = with + byte(i*i>>5)
	}
	copy(a.want[at*format.SectorSize:], p)
	return a.v.Write(a.tk, p, a.k.Logical+uint64(at*format.SectorSize))
}

// whole wants the bytes of the chunk.
func (a *array) whole(what string) {
	a.t.Helper()
	have := make([]byte, len(a.want))
	b := &blockdev.Bio{Op: blockdev.OpRead, Off: int64(a.k.Logical), Vecs: [][]byte{have}}
	if err := blockdev.Do(a.tk, a.v, b); err != nil || !bytes.Equal(have, a.want) {
		a.t.Errorf("%s: other bytes, %v", what, err)
	}
}

// parity wants the parity of each row to be that of its data, in arithmetic of bytes.
func (a *array) parity(what string) {
	a.t.Helper()
	n, parity := len(a.devs), a.k.profile.Parity
	for row := range a.k.Chunk.StripeBytes() / format.StripeLen {
		units := make([][]byte, n)
		for i := range units {
			s := a.k.Chunk.Stripes[format.RowStripe(n, row, i)]
			units[i] = a.devs[s.Devid-1].data[s.Offset+row*format.StripeLen:][:format.StripeLen]
		}
		for x := range format.StripeLen {
			var p, q byte
			for i := n - parity - 1; i >= 0; i-- {
				carry := q >> 7
				p ^= units[i][x]
				q = q<<1 ^ 0x1d*carry ^ units[i][x]
			}
			if units[n-parity][x] != p || parity == 2 && units[n-1][x] != q {
				a.t.Errorf("%s: row %d has a bad parity at byte %d", what, row, x)
				return
			}
		}
	}
}

// arrays are the profiles with parity and numbers of devices.
func arrays(f func(name string, profile uint64, n, parity int)) {
	for n := 2; n <= 6; n++ {
		f(fmt.Sprint("raid5 of ", n), format.BlockGroupRAID5, n, 1)
		if n > 2 {
			f(fmt.Sprint("raid6 of ", n), format.BlockGroupRAID6, n, 2)
		}
	}
}

// TestParityWritten: writes of any length, at any sector, leave the bytes and the parity of all
// rows; with as many devices missing as the profile bears the bytes are read without them.
func TestParityWritten(t *testing.T) {
	arrays(func(name string, profile uint64, n, parity int) {
		t.Run(name, func(t *testing.T) {
			for lost := range parity + 1 {
				a := newArray(t, profile, n, 4)
				a.parity("filled")
				rng := rand.New(rand.NewPCG(uint64(n), uint64(lost)))
				for i := range 6 {
					gone := rng.Perm(n)[:lost]
					a.lose(gone...)
					sectors := len(a.want) / format.SectorSize
					at := rng.IntN(sectors)
					a.must(a.write(at, 1+rng.IntN(sectors-at), byte(i*29)))
					what := fmt.Sprintf("write %d without %v", i, gone)
					a.whole(what)
					// The device comes back as it left: what it missed is made anew.
					for _, k := range gone {
						a.replace(k)
					}
					a.find()
					a.whole(what + ", replaced")
					a.parity(what + ", replaced")
				}
			}
		})
	})
}

// TestParityReads: a write of whole rows reads nothing, one of a part reads the other data units in
// its columns only.
func TestParityReads(t *testing.T) {
	const unit = format.StripeLen / format.SectorSize
	for _, c := range []struct {
		at, n int // sectors
		want  int // sectors that are read
	}{
		{0, 3 * unit, 0},
		{0, 6 * unit, 0},
		{0, 1, 2},
		{unit, unit, 2 * unit},
		{5, unit, 2 * unit}, // in two units, but in no column of both
		{3 * unit, 3*unit - 1, 1},
		{unit - 1, 2, 4},
		{3*unit - 1, 2, 4}, // the end of a row and the start of the next
	} {
		a := newArray(t, format.BlockGroupRAID5, 4, 3)
		var mu sync.Mutex
		read := 0
		for _, d := range a.devs {
			d.each = func(b *blockdev.Bio) {
				mu.Lock()
				defer mu.Unlock()
				if b.Op == blockdev.OpRead {
					read += b.Len() / format.SectorSize
				}
			}
		}
		a.must(a.write(c.at, c.n, 3))
		if read != c.want {
			t.Errorf("%d sectors from %d on: have %d sectors read want %d", c.n, c.at, read, c.want)
		}
		a.parity("after")
	}
}

// TestParityBadReads: a data unit that fails to be read is made from the parity before the parity
// is made anew; with more of them than the profile bears nothing is written.
func TestParityBadReads(t *testing.T) {
	arrays(func(name string, profile uint64, n, parity int) {
		data := n - parity
		for bad := 1; bad < data; bad++ {
			a := newArray(t, profile, n, 1)
			before := make([][]byte, n)
			for i, d := range a.devs {
				before[i] = bytes.Clone(d.data)
			}
			for i := 1; i <= bad; i++ {
				s := a.k.Chunk.Stripes[i]
				a.devs[s.Devid-1].failRead = true
			}
			err := a.write(0, 1, 77)
			if bad > parity {
				if !errors.Is(err, errno.EIO) || !strings.Contains(err.Error(), fmt.Sprintf("%d of %d stripes are bad", bad, n)) {
					t.Errorf("%s, %d bad: have %v want EIO", name, bad, err)
				}
				for i, d := range a.devs {
					if !bytes.Equal(before[i], d.data) {
						t.Errorf("%s, %d bad: device %d is written", name, bad, i+1)
					}
				}
				continue
			}
			a.must(err)
			for _, d := range a.devs {
				d.failRead = false
			}
			a.parity(fmt.Sprintf("%s, %d bad", name, bad))
			a.whole(name)
		}
	})
}

// TestParityRefused: what cannot be written is an error of the bio: sectors in part, and rows with
// more missing devices than there is parity.
func TestParityRefused(t *testing.T) {
	a := newArray(t, format.BlockGroupRAID5, 3, 1)
	if err := a.v.Write(a.tk, make([]byte, 100), a.k.Logical); !errors.Is(err, errno.EINVAL) {
		t.Errorf("100 bytes: have %v want EINVAL", err)
	}
	a.lose(0, 1)
	if err := a.write(0, 32, 1); !errors.Is(err, errno.EIO) || !strings.Contains(err.Error(), "2 of 3 stripes are missing, raid5 bears 1") {
		t.Errorf("without two devices: have %v want EIO", err)
	}
	a.find()
	s := a.k.Chunk.Stripes[2]
	a.devs[s.Devid-1].failAt[int64(s.Offset)] = errno.ENOSPC
	if err := a.write(0, 1, 1); !errors.Is(err, errno.ENOSPC) {
		t.Errorf("parity not written: have %v want ENOSPC", err)
	}
}

// TestStripeLock: many tasks write units of the same rows, and others read without a device; each
// sees its bytes, and the parity is right at the end.
func TestStripeLock(t *testing.T) {
	for _, profile := range []uint64{format.BlockGroupRAID5, format.BlockGroupRAID6} {
		a := newArray(t, profile, 5, 2)
		for _, d := range a.devs {
			d.async = true
		}
		a.lose(1)
		var wg sync.WaitGroup
		sectors := len(a.want) / format.SectorSize
		const tasks = 8
		for w := range tasks {
			wg.Add(1)
			go func() {
				defer wg.Done()
				tk := sched.NewTask(fmt.Sprint("writer ", w))
				p, q := make([]byte, format.SectorSize), make([]byte, format.SectorSize)
				for i := range 40 {
					at := w + tasks*((i*7)%(sectors/tasks))
					for j := range p {
						p[j] = byte(i + w*j)
					}
					logical := a.k.Logical + uint64(at*format.SectorSize)
					if err := a.v.Write(tk, p, logical); err != nil {
						t.Error(err)
						return
					}
					b := &blockdev.Bio{Op: blockdev.OpRead, Off: int64(logical), Vecs: [][]byte{q}}
					if err := blockdev.Do(tk, a.v, b); err != nil || !bytes.Equal(p, q) {
						t.Errorf("sector %d: other bytes, %v", at, err)
						return
					}
					copy(a.want[at*format.SectorSize:], p)
				}
			}()
		}
		wg.Wait()
		a.whole("without a device")
		a.replace(1)
		a.find()
		a.parity("at the end")
		for i := range a.v.stripes.buckets {
			if n := len(a.v.stripes.buckets[i].owners); n > 0 {
				t.Errorf("bucket %d: %d rows are still locked", i, n)
			}
		}
	}
}

// TestStripeJoin: writes that wait for one row are carried out as one: two halves of a row, that
// come while a third write owns it, are written without a read.
func TestStripeJoin(t *testing.T) {
	a := newArray(t, format.BlockGroupRAID5, 3, 1)
	const unit = format.StripeLen / format.SectorSize
	var held []func()
	hold := true
	reads := 0
	for _, d := range a.devs {
		d.each = func(b *blockdev.Bio) {
			if b.Op == blockdev.OpRead {
				reads++
			}
		}
		d.hold = func(end func()) bool {
			if hold {
				held = append(held, end)
			}
			return hold
		}
	}
	done := make(chan error, 3)
	submit := func(at, n int, with byte) {
		p := bytes.Repeat([]byte{with}, n*format.SectorSize)
		copy(a.want[at*format.SectorSize:], p)
		a.v.Submit(a.tk, &blockdev.Bio{Op: blockdev.OpWrite, Off: int64(a.k.Logical) + int64(at*format.SectorSize), Vecs: [][]byte{p},
			EndIO: func(_ *sched.Task, b *blockdev.Bio) { done <- b.Err }})
	}
	submit(0, 2*unit, 1) // whole: three writes that are held
	submit(0, unit, 2)
	submit(unit, unit, 3)
	if len(held) != 3 {
		t.Fatalf("%d bios are under way, want the three of the first write", len(held))
	}
	hold = false
	for _, end := range held {
		end()
	}
	for range 3 {
		a.must(<-done)
	}
	if reads != 0 {
		t.Errorf("%d reads, want none", reads)
	}
	a.whole("joined")
	a.parity("joined")
}
