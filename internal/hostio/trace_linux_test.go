package hostio

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"btrlab/internal/testing/need"
)

// The lines of a format file, and what a record says by them.
func TestTraceFields(t *testing.T) {
	fields := map[string]TraceField{}
	for _, line := range strings.Split(`	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:u8 fsid[16];	offset:8;	size:16;	signed:0;
	field:int mod;	offset:24;	size:4;	signed:1;
	field:__data_loc char[] type;	offset:28;	size:4;	signed:0;
	field:s64 diff;	offset:32;	size:8;	signed:1;
print fmt: "%pU"`, "\n") {
		if name, f, ok := parseField(strings.TrimSpace(line)); ok {
			fields[name] = f
		}
	}
	if len(fields) != 5 {
		t.Fatalf("fields %v, want 5", fields)
	}
	raw := make([]byte, 48)
	binary.LittleEndian.PutUint32(raw[24:], ^uint32(0))
	binary.LittleEndian.PutUint32(raw[28:], 40|5<<16)
	binary.LittleEndian.PutUint64(raw[32:], ^uint64(4095))
	copy(raw[40:], "data\x00")
	copy(raw[8:], "0123456789abcdef")
	r := TraceRecord{raw: raw, fields: fields}
	if r.Int("mod") != -1 || r.Int("diff") != -4096 || r.Int("none") != 0 || r.String("type") != "data" || string(r.Bytes("fsid")) != "0123456789abcdef" {
		t.Errorf("mod %d, diff %d, none %d, type %q, fsid %q", r.Int("mod"), r.Int("diff"), r.Int("none"), r.String("type"), r.Bytes("fsid"))
	}
	if r.Has("none") || !r.Has("mod") {
		t.Error("Has")
	}
}

// Type information of one enumeration between other types, and what is cut short.
func TestParseEnums(t *testing.T) {
	le := binary.LittleEndian
	strs := []byte("\x00EXTENT_LOCKED\x00OTHER\x00")
	u32 := func(v ...uint32) (b []byte) {
		for _, x := range v {
			b = le.AppendUint32(b, x)
		}
		return b
	}
	types := u32(0, 1<<24, 4, 0)                              // an int
	types = append(types, u32(0, 6<<24|2, 4, 1, 2, 15, 7)...) // an enum of two
	types = append(types, u32(0, 4<<24|1, 8, 0, 0, 0)...)     // a struct of one
	head := u32(btfMagic|1<<16, 24, 0, uint32(len(types)), uint32(len(types)), uint32(len(strs)))
	b := append(append(head, types...), strs...)
	all, err := parseEnums(b, nil, func(name string) bool { return strings.HasPrefix(name, "EXTENT_") })
	if err != nil || len(all) != 1 || all["EXTENT_LOCKED"] != 2 {
		t.Errorf("%v, %v", all, err)
	}
	for n := range len(b) {
		if _, err := parseEnums(b[:n], nil, func(string) bool { return true }); err == nil {
			t.Fatalf("the first %d bytes of %d are no error", n, len(b))
		}
	}
}

// Members of one structure between other types, one of them a bit field.
func TestParseOffsets(t *testing.T) {
	le := binary.LittleEndian
	strs := []byte("\x00inode\x00i_ino\x00i_size\x00other\x00")
	u32 := func(v ...uint32) (b []byte) {
		for _, x := range v {
			b = le.AppendUint32(b, x)
		}
		return b
	}
	const inode, ino, size, other = 1, 7, 13, 20
	types := u32(other, 4<<24|1, 8, ino, 0, 64)
	types = append(types, u32(inode, 1<<31|4<<24|3, 80, ino, 0, 64*8, size, 0, 72*8, other, 0, 3<<24|5)...)
	types = append(types, u32(inode, 6<<24, 4)...) // an enum of the same name
	head := u32(btfMagic|1<<16, 24, 0, uint32(len(types)), uint32(len(types)), uint32(len(strs)))
	b := append(append(head, types...), strs...)
	all, err := parseOffsets(b, []string{"inode.i_ino", "inode.i_size", "inode.i_mode"})
	if err != nil || len(all) != 2 || all["inode.i_ino"] != 64 || all["inode.i_size"] != 72 {
		t.Errorf("%v, %v", all, err)
	}
}

// A kernel either gives the event at the entry of a function or says why not, and has its
// tracepoints all the same.
func TestProbe(t *testing.T) {
	need.All(t, need.Root)
	x, err := NewTracer([]string{"sched:sched_process_exec"}, Probe{Name: "btrlabtest:sync", Func: "ksys_sync"})
	if errors.Is(err, ErrTracing) {
		need.Without(t, "way to read the kernel's tracepoints ("+err.Error()+")")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}()
	if len(x.Missing) > 0 {
		t.Errorf("missing: %v", x.Missing)
	}
	if x.Refused != nil {
		t.Logf("refused: %v", x.Refused)
		return
	}
	if err := x.Start(); err != nil {
		t.Fatal(err)
	}
	unix.Sync()
	records, err := x.Stop()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(records, func(r TraceRecord) bool { return r.Name == "btrlabtest:sync" }) {
		t.Errorf("sync() was not seen: %d events", len(records))
	}
}
