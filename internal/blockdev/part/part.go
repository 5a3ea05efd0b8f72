// Package part finds the partitions of a disk and makes a device of one.
//
// Model: the partition scanner of the kernel (block/partitions: msdos.c, efi.c), for MBR with
// logical partitions and GPT, on sectors of 512 and, for GPT, 4,096 bytes. Differences: nothing
// else is known, and a GPT whose checksum is wrong is not replaced by its copy at the end.
package part

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"

	"btrlab/internal/blockdev"
	"btrlab/internal/sched"
)

// Partition is a part of a disk.
type Partition struct {
	Number int   // from 1 on, as Linux counts; logical ones from 5 on; 0 for a range that has none
	Start  int64 // bytes
	Size   int64
}

// end is the first byte after p.
func (p Partition) end() int64 { return p.Start + p.Size }

// Table is the partition table of a disk.
type Table struct {
	Kind string // "MBR" or "GPT"
	Disk []Partition

	taken []Partition // Disk, and what does not lie within the disk
	frame []Partition // extended partitions, which hold logical ones
	own   []Partition // the bytes of the table itself; without numbers
}

const sector = 512

// Read reads the table of the disk dev; nil when there is none. Partitions that do not lie within
// the disk are left out.
func Read(t *sched.Task, dev blockdev.Device) (*Table, error) {
	r := reader{t, dev}
	head, err := r.read(0, sector)
	if err != nil || head == nil || binary.LittleEndian.Uint16(head[510:]) != 0xaa55 {
		return nil, err
	}
	var table *Table
	if protective(head) {
		table, err = r.gpt()
	} else {
		table, err = r.mbr(head)
	}
	if table != nil {
		table.taken = slices.Clone(table.Disk)
		table.Disk = slices.DeleteFunc(table.Disk, func(p Partition) bool { return p.Start <= 0 || p.Size <= 0 || p.Start > dev.Size()-p.Size })
	}
	return table, err
}

// Find is the partition of the number.
func (t *Table) Find(number int) (Partition, bool) {
	i := slices.IndexFunc(t.Disk, func(p Partition) bool { return p.Number == number })
	if i < 0 {
		return Partition{}, false
	}
	return t.Disk[i], true
}

type reader struct {
	t   *sched.Task
	dev blockdev.Device
}

// read reads n bytes at off; nil where the disk has ended.
func (r *reader) read(off int64, n int) ([]byte, error) {
	if off < 0 || off > r.dev.Size()-int64(n) {
		return nil, nil
	}
	b := make([]byte, n)
	if err := blockdev.Read(r.t, r.dev, b, off); err != nil {
		return nil, blockdev.Errorf(r.dev, "read of the partition table at %d: %w", off, err)
	}
	return b, nil
}

// entry is an entry of an MBR.
func entry(head []byte, i int) (typ byte, start, sectors int64) {
	e := head[446+16*i:]
	return e[4], int64(binary.LittleEndian.Uint32(e[8:])), int64(binary.LittleEndian.Uint32(e[12:]))
}

func protective(head []byte) bool {
	typ, _, _ := entry(head, 0)
	return typ == 0xee
}

func extended(typ byte) bool { return typ == 0x05 || typ == 0x0f || typ == 0x85 }

// Bounds of the chain of logical partitions.
const (
	firstLogical = 5
	maxLogical   = 128
)

func (r *reader) mbr(head []byte) (*Table, error) {
	table := &Table{Kind: "MBR", own: []Partition{{0, 0, sector}}}
	for i := range 4 {
		typ, start, n := entry(head, i)
		switch {
		case typ == 0 || n == 0:
		case extended(typ):
			table.frame = append(table.frame, Partition{i + 1, start * sector, n * sector})
			if err := r.logical(table, start); err != nil {
				return nil, err
			}
		default:
			table.Disk = append(table.Disk, Partition{i + 1, start * sector, n * sector})
		}
	}
	slices.SortFunc(table.Disk, func(a, b Partition) int { return a.Number - b.Number })
	if len(table.Disk) == 0 {
		return nil, nil // 55 aa alone ends many a boot sector
	}
	return table, nil
}

// logical follows the chain of logical partitions in the extended one at start.
func (r *reader) logical(table *Table, start int64) error {
	at := start
	seen := map[int64]bool{}
	for number := firstLogical; number < firstLogical+maxLogical; number++ {
		b, err := r.read(at*sector, sector)
		if err != nil || b == nil || binary.LittleEndian.Uint16(b[510:]) != 0xaa55 || seen[at] {
			return err
		}
		seen[at] = true
		table.own = append(table.own, Partition{0, at * sector, sector})
		if typ, off, n := entry(b, 0); typ != 0 && n != 0 {
			table.Disk = append(table.Disk, Partition{number, (at + off) * sector, n * sector})
		}
		typ, next, _ := entry(b, 1)
		if !extended(typ) || next == 0 {
			return nil
		}
		at = start + next
	}
	return nil
}

// Bounds of a GPT.
const (
	gptHeader     = 92
	maxGPTEntries = 1024
	maxGPTEntry   = 4096
)

func (r *reader) gpt() (*Table, error) {
	for _, block := range []int64{512, 4096} {
		h, err := r.read(block, gptHeader)
		if err != nil {
			return nil, err
		}
		if h == nil || string(h[:8]) != "EFI PART" {
			continue
		}
		sum := slices.Clone(h)
		clear(sum[16:20])
		n, size := int(binary.LittleEndian.Uint32(h[80:])), int(binary.LittleEndian.Uint32(h[84:]))
		if binary.LittleEndian.Uint32(h[12:]) != gptHeader || crc32.ChecksumIEEE(sum) != binary.LittleEndian.Uint32(h[16:]) || n > maxGPTEntries || size < 128 || size > maxGPTEntry {
			return nil, blockdev.Errorf(r.dev, "bad GPT header at %d", block)
		}
		list, err := r.read(int64(binary.LittleEndian.Uint64(h[72:]))*block, n*size)
		if err != nil {
			return nil, err
		}
		if list == nil || crc32.ChecksumIEEE(list) != binary.LittleEndian.Uint32(h[88:]) {
			return nil, blockdev.Errorf(r.dev, "bad GPT: the entries at block %d do not match their checksum", binary.LittleEndian.Uint64(h[72:]))
		}
		table := &Table{Kind: "GPT", own: gptOwn(h, block, r.dev.Size())}
		for i := range n {
			e := list[i*size:]
			first, last := int64(binary.LittleEndian.Uint64(e[32:])), int64(binary.LittleEndian.Uint64(e[40:]))
			if [16]byte(e[:16]) != ([16]byte{}) && first > 0 && last >= first && last < 1<<50 {
				table.Disk = append(table.Disk, Partition{i + 1, first * block, (last - first + 1) * block})
			}
		}
		return table, nil
	}
	return nil, nil
}

// gptOwn are the two ends of a disk of size bytes that the header h keeps from partitions: there
// are the table and its copy.
func gptOwn(h []byte, block, size int64) []Partition {
	usable := func(off int) int64 {
		return int64(min(binary.LittleEndian.Uint64(h[off:]), uint64(size/block))) * block
	}
	first, end := usable(40), min(usable(48)+block, size)
	return []Partition{{0, 0, max(first, 2*block)}, {0, end, size - end}}
}

// Room is a range of a disk of size bytes that begins at start, for a new file system: of want
// bytes or, if that is 0, up to where something else begins. Without a table t is nil. A start in a
// partition is the range in that one. It is an error if the range does not lie within the disk, or
// has bytes of the table or of another partition.
func (t *Table) Room(start, want, size int64) (Partition, error) {
	if start < 0 || start >= size || want > size-start {
		return Partition{}, fmt.Errorf("has %d bytes, want %d at %d", size, max(want, 1), start)
	}
	room := Partition{0, start, size - start}
	if want > 0 {
		room.Size = want
	}
	in := t.holder(start)
	for _, o := range t.others(in) {
		if o.Start > start && want == 0 {
			room.Size = min(room.Size, o.Start-start)
		}
	}
	if in != nil && room.end() > in.end() {
		if want > 0 {
			return Partition{}, fmt.Errorf("from %d on partition %d has %d bytes, want %d", start, in.Number, in.end()-start, want)
		}
		room.Size = in.end() - start
	}
	return room, t.clear(in, room)
}

// Clear is an error if p, one of t's, has bytes of the table or of another partition.
func (t *Table) Clear(p Partition) error { return t.clear(&p, p) }

// clear is an error if room, a range of the partition in unless that is nil, has bytes of the table
// or of another partition.
func (t *Table) clear(in *Partition, room Partition) error {
	for _, o := range t.others(in) {
		if o.Start < room.end() && room.Start < o.end() {
			return t.overlap(room, o)
		}
	}
	return nil
}

// Holder is the partition that holds the byte at off, if there is one. Without a table t is nil.
func (t *Table) Holder(off int64) (p Partition, ok bool) {
	if in := t.holder(off); in != nil {
		return *in, true
	}
	return p, false
}

// holder is Holder; nil if there is none.
func (t *Table) holder(off int64) (in *Partition) {
	if t == nil {
		return nil
	}
	for i, p := range t.taken {
		if p.Start <= off && off < p.end() && (in == nil || in.Start < p.Start) {
			in = &t.taken[i]
		}
	}
	return in
}

// others is everything that is taken by something else than the partition in, which may be nil. The
// extended partition is none to its logical ones.
func (t *Table) others(in *Partition) []Partition {
	if t == nil {
		return nil
	}
	list := slices.Clone(t.own)
	for _, p := range t.taken {
		if in == nil || p.Number != in.Number {
			list = append(list, p)
		}
	}
	if in == nil || t.Kind != "MBR" || in.Number < firstLogical {
		list = append(list, t.frame...)
	}
	return list
}

// overlap says which part of the disk has bytes of room.
func (t *Table) overlap(room, o Partition) error {
	what := fmt.Sprintf("partition %d", o.Number)
	switch {
	case o.Number == 0:
		what = "the " + t.Kind
	case slices.Contains(t.frame, o):
		what = fmt.Sprintf("the extended partition %d", o.Number)
	}
	return fmt.Errorf("its bytes from %d to %d overlap %s, which has those from %d to %d", room.Start, room.end(), what, o.Start, o.end())
}

// Open is a device of the bytes of p in dev, which Close closes.
func Open(dev blockdev.Device, p Partition) blockdev.Device {
	name := fmt.Sprintf("%s partition %d", dev.Name(), p.Number)
	if p.Number == 0 {
		name = fmt.Sprintf("%s offset %d", dev.Name(), p.Start)
	}
	return &device{Device: dev, p: p, name: name}
}

type device struct {
	blockdev.Device
	p    Partition
	name string
}

func (d *device) Name() string           { return d.name }
func (d *device) Size() int64            { return d.p.Size }
func (d *device) Under() blockdev.Device { return d.Device }
func (d *device) Offset() int64          { return d.p.Start }

// Discard passes it on to the disk, at the partition's place.
func (d *device) Discard(t *sched.Task, off, n int64) error {
	return blockdev.Discard(t, d.Device, off+d.p.Start, n)
}

// shifted is a bio on its way to the disk.
type shifted struct {
	blockdev.Bio
	of *blockdev.Bio
}

// Submit moves b to the partition's place.
func (d *device) Submit(t *sched.Task, b *blockdev.Bio) {
	if err := blockdev.CheckRange(d, b); err != nil {
		b.Err = err
		b.EndIO(t, b)
		return
	}
	s := &shifted{of: b}
	s.Bio = blockdev.Bio{Op: b.Op, Off: b.Off + d.p.Start, Vecs: b.Vecs, EndIO: endShifted, Private: s, DMA: b.DMA}
	d.Device.Submit(t, &s.Bio)
}

func endShifted(t *sched.Task, b *blockdev.Bio) {
	of := b.Private.(*shifted).of
	of.Err = b.Err
	of.EndIO(t, of)
}
