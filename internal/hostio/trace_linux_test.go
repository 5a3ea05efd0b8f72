package hostio

import (
	"encoding/binary"
	"strings"
	"testing"
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
