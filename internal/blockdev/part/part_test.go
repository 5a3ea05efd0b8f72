package part

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/sched"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

var tk = sched.NewTask("part test")

func disk(t *testing.T, size int64, parts map[int64][]byte) blockdev.Device {
	t.Helper()
	d := blockdev.NewMemory(size)
	for off, b := range parts {
		if err := blockdev.Write(tk, d, b, off); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// record is an MBR of entries of type, start and length in sectors.
func record(entries ...[3]uint32) []byte {
	b := make([]byte, sector)
	for i, e := range entries {
		p := b[446+16*i:]
		p[4] = byte(e[0])
		binary.LittleEndian.PutUint32(p[8:], e[1])
		binary.LittleEndian.PutUint32(p[12:], e[2])
	}
	binary.LittleEndian.PutUint16(b[510:], 0xaa55)
	return b
}

// gptOf is header and entries of a GPT of blocks of that size, with partitions of first and last
// block.
func gptOf(block int64, parts ...[2]uint64) map[int64][]byte {
	list := make([]byte, 128*128)
	for i, p := range parts {
		e := list[i*128:]
		if p[1] == 0 {
			continue
		}
		e[0] = 1
		binary.LittleEndian.PutUint64(e[32:], p[0])
		binary.LittleEndian.PutUint64(e[40:], p[1])
	}
	h := make([]byte, gptHeader)
	copy(h, "EFI PART")
	binary.LittleEndian.PutUint32(h[12:], gptHeader)
	binary.LittleEndian.PutUint64(h[72:], 2)
	binary.LittleEndian.PutUint32(h[80:], 128)
	binary.LittleEndian.PutUint32(h[84:], 128)
	binary.LittleEndian.PutUint32(h[88:], crc32.ChecksumIEEE(list))
	binary.LittleEndian.PutUint32(h[16:], crc32.ChecksumIEEE(h))
	return map[int64][]byte{0: record([3]uint32{0xee, 1, 0xffffffff}), block: h, 2 * block: list}
}

func TestRead(t *testing.T) {
	const size = 64 << 20
	circle := map[int64][]byte{0: record([3]uint32{5, 100, 1000}), 100 * sector: record([3]uint32{0x83, 1, 10}, [3]uint32{5, 50, 10}), 150 * sector: record([3]uint32{0x83, 1, 20}, [3]uint32{5, 50, 10})}
	bad := gptOf(512, [2]uint64{40, 99})
	bad[512][20]++
	cut := gptOf(512, [2]uint64{40, 99})
	cut[1024][0]++
	for name, c := range map[string]struct {
		parts map[int64][]byte
		want  string
	}{
		"nothing":     {nil, "<nil>"},
		"boot sector": {map[int64][]byte{0: record()}, "<nil>"},
		"MBR":         {map[int64][]byte{0: record([3]uint32{0x83, 2048, 4096}, [3]uint32{}, [3]uint32{7, 8192, 10})}, "MBR [{1 1048576 2097152} {3 4194304 5120}]"},
		"beyond":      {map[int64][]byte{0: record([3]uint32{0x83, 2048, 4096}, [3]uint32{0x83, 1 << 20, 1})}, "MBR [{1 1048576 2097152}]"},
		"logical": {map[int64][]byte{0: record([3]uint32{0x83, 8, 8}, [3]uint32{15, 100, 1000}), 100 * sector: record([3]uint32{0x83, 1, 10}, [3]uint32{5, 50, 10}),
			150 * sector: record([3]uint32{0x83, 2, 20})}, "MBR [{1 4096 4096} {5 51712 5120} {6 77824 10240}]"},
		"GPT":            {gptOf(512, [2]uint64{40, 99}, [2]uint64{}, [2]uint64{200, 200}), "GPT [{1 20480 30720} {3 102400 512}]"},
		"GPT 4K":         {gptOf(4096, [2]uint64{40, 99}), "GPT [{1 163840 245760}]"},
		"GPT beyond":     {gptOf(512, [2]uint64{40, 1 << 40}, [2]uint64{40, 30}), "GPT []"},
		"GPT bad header": {bad, "bad GPT header at 512"},
		"GPT bad list":   {cut, "do not match their checksum"},
		"no GPT":         {map[int64][]byte{0: record([3]uint32{0xee, 1, 9})}, "<nil>"},
	} {
		table, err := Read(tk, disk(t, size, c.parts))
		have := "<nil>"
		if table != nil {
			have = fmt.Sprintf("%s %v", table.Kind, table.Disk)
		}
		if err != nil {
			have = err.Error()
		}
		if have != c.want && !(err != nil && strings.Contains(have, c.want)) {
			t.Errorf("%s: have %s want %s", name, have, c.want)
		}
	}
	if table, err := Read(tk, disk(t, size, circle)); err != nil || len(table.Disk) != 2 {
		t.Errorf("a chain that leads back: %v, %v", table, err)
	}
	if table, err := Read(tk, blockdev.NewMemory(100)); table != nil || err != nil {
		t.Errorf("100 bytes: %v, %v", table, err)
	}
}

// A partition's bytes are those of the disk from its start on, and no others.
func TestOpen(t *testing.T) {
	d := disk(t, 1<<20, nil)
	p := Open(d, Partition{3, 8192, 16384})
	if base, off := blockdev.Base(p); base != d || off != 8192 || p.Size() != 16384 || !strings.Contains(p.Name(), "partition 3") {
		t.Errorf("%v at %d, %d bytes, %s", base, off, p.Size(), p.Name())
	}
	want := bytes.Repeat([]byte("p"), 4096)
	if err := blockdev.Write(tk, p, want, 12288); err != nil {
		t.Fatal(err)
	}
	have := make([]byte, 4096)
	if err := blockdev.Read(tk, d, have, 8192+12288); err != nil || !bytes.Equal(have, want) {
		t.Errorf("the disk has other bytes there: %v", err)
	}
	if err := blockdev.Read(tk, p, have, 12288); err != nil || !bytes.Equal(have, want) {
		t.Errorf("the partition has other bytes there: %v", err)
	}
	if blockdev.Write(tk, p, want, 16384-4095) == nil || blockdev.Read(tk, p, have, -1) == nil {
		t.Error("a transfer beyond the partition went well")
	}
	if err := blockdev.Flush(tk, p); err != nil {
		t.Error(err)
	}
}

func FuzzRead(f *testing.F) {
	for _, parts := range []map[int64][]byte{gptOf(512, [2]uint64{40, 99}), {0: record([3]uint32{5, 1, 1000})}} {
		b := make([]byte, 40<<10)
		for off, p := range parts {
			copy(b[off:], p)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 {
			return
		}
		d := disk(t, int64(len(b)), map[int64][]byte{0: b})
		table, err := Read(tk, d)
		if err != nil || table == nil {
			return
		}
		for _, start := range []int64{0, 512, 1024, 20480, d.Size() - 1} {
			if room, err := table.Room(start, 0, d.Size()); err == nil && (room.Start != start || room.Size <= 0 || room.Start+room.Size > d.Size()) {
				t.Errorf("%+v of %d bytes", room, d.Size())
			}
		}
		for _, p := range table.Disk {
			if p.Start <= 0 || p.Size <= 0 || p.Start+p.Size > d.Size() {
				t.Errorf("%+v of %d bytes", p, d.Size())
			}
		}
	})
}

// TestRoom: a range for a new file system has bytes of nothing else: not of another partition, also
// of one that the disk is too short for, not of the table, its copy, or a record of the chain.
func TestRoom(t *testing.T) {
	const size = 64 << 20
	gpt := gptOf(512, [2]uint64{2048, 4095}, [2]uint64{8192, 9999}, [2]uint64{100000, 1 << 40})
	binary.LittleEndian.PutUint64(gpt[512][40:], 34)
	binary.LittleEndian.PutUint64(gpt[512][48:], 131000)
	clear(gpt[512][16:20])
	binary.LittleEndian.PutUint32(gpt[512][16:], crc32.ChecksumIEEE(gpt[512]))
	mbr := map[int64][]byte{0: record([3]uint32{0x83, 8, 8}, [3]uint32{15, 100, 1000}), 100 * sector: record([3]uint32{0x83, 1, 10}, [3]uint32{5, 50, 10}),
		150 * sector: record([3]uint32{0x83, 2, 20})}
	for _, c := range []struct {
		parts       map[int64][]byte
		start, want int64 // sectors
		have        string
	}{
		{nil, 0, 0, "0 131072"}, {nil, 100, 7, "100 7"}, {nil, 131071, 2, "has 67108864 bytes, want 1024 at 67108352"}, {nil, 131072, 0, "want 1 at"},
		{nil, -1, 0, "want 1 at"}, {nil, 1, 1 << 53, "want"},
		{gpt, 2048, 0, "2048 2048"}, {gpt, 2050, 0, "2050 2046"}, {gpt, 2050, 2046, "2050 2046"}, {gpt, 2050, 2047, "on partition 1 has 1047552 bytes, want 1048064"},
		{gpt, 4096, 0, "4096 4096"}, {gpt, 4096, 4097, "overlap partition 2"}, {gpt, 10000, 0, "10000 90000"}, {gpt, 10000, 100000, "overlap partition 3"},
		{gpt, 100, 0, "100 1948"}, {gpt, 33, 10, "overlap the GPT"}, {gpt, 0, 0, "overlap the GPT"}, {gpt, 131001, 10, "overlap"},
		{mbr, 0, 0, "overlap the MBR"}, {mbr, 1, 0, "1 7"}, {mbr, 16, 0, "16 84"}, {mbr, 16, 85, "overlap the MBR"}, {mbr, 101, 0, "101 10"},
		{mbr, 111, 0, "overlap the extended partition 2"}, {mbr, 100, 1, "overlap the MBR"}, {mbr, 152, 20, "152 20"}, {mbr, 1100, 0, "1100 129972"},
	} {
		table, err := Read(tk, disk(t, size, c.parts))
		if err != nil {
			t.Fatal(err)
		}
		room, err := table.Room(c.start*sector, c.want*sector, size)
		have := fmt.Sprint(room.Start/sector, room.Size/sector)
		if err != nil {
			have = err.Error()
		}
		if have != c.have && !(err != nil && strings.Contains(have, c.have)) {
			t.Errorf("%d from %d: have %s want %s", c.want, c.start, have, c.have)
		}
	}
}

// TestClear: an entry of a table may say anything, but no file system is made over another one, or
// over the table.
func TestClear(t *testing.T) {
	for name, c := range map[string]struct {
		parts map[int64][]byte
		want  string // of each partition
	}{
		"apart":       {gptOf(512, [2]uint64{2048, 4095}, [2]uint64{8192, 9999}), "true true"},
		"one in two":  {gptOf(512, [2]uint64{2048, 4095}, [2]uint64{4095, 9999}), "false false"},
		"same":        {gptOf(512, [2]uint64{2048, 4095}, [2]uint64{2048, 4095}), "false false"},
		"the table":   {gptOf(512, [2]uint64{1, 4095}, [2]uint64{8192, 9999}), "false true"},
		"the record":  {map[int64][]byte{0: record([3]uint32{5, 100, 1000}), 100 * sector: record([3]uint32{0x83, 0, 10})}, "false"},
		"logical":     {map[int64][]byte{0: record([3]uint32{5, 100, 1000}), 100 * sector: record([3]uint32{0x83, 1, 10})}, "true"},
		"an extended": {map[int64][]byte{0: record([3]uint32{5, 100, 1000}, [3]uint32{0x83, 1099, 10})}, "false"},
	} {
		if h := c.parts[512]; h != nil {
			binary.LittleEndian.PutUint64(h[40:], 34)
			binary.LittleEndian.PutUint64(h[48:], 20000)
			clear(h[16:20])
			binary.LittleEndian.PutUint32(h[16:], crc32.ChecksumIEEE(h))
		}
		table, err := Read(tk, disk(t, 64<<20, c.parts))
		if err != nil {
			t.Fatal(err)
		}
		var have []string
		for _, p := range table.Disk {
			have = append(have, fmt.Sprint(table.Clear(p) == nil))
		}
		if have := strings.Join(have, " "); have != c.want {
			t.Errorf("%s: have %s want %s", name, have, c.want)
		}
	}
}
