package format

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"reflect"
	"strings"
	"testing"
)

// Each view must read what the codec writes and, where it has setters, write what the codec reads.
// Codec and view share their offsets, so both are held against packed, which lays the fields out by
// itself. Every field gets a value that no other field has: a wrong offset or width cannot go
// unseen.

// packed is the item in b as the structure of fields says, without gaps, followed by the rest.
func packed(t *testing.T, b []byte, fields any, rest ...string) {
	t.Helper()
	want, err := binary.Append(nil, binary.LittleEndian, fields)
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, strings.Join(rest, "")...)
	if !bytes.Equal(b, want) {
		t.Errorf("%T: have % x\nwant % x", fields, b, want)
	}
}

// same compares each field of the item with the method of its name on the view.
func same(t *testing.T, item, view any, fields ...string) {
	t.Helper()
	have, want := reflect.ValueOf(view), reflect.Indirect(reflect.ValueOf(item))
	for _, f := range fields {
		w := want.FieldByName(f).Interface()
		h := have.MethodByName(f).Call(nil)[0].Interface()
		if b, ok := h.([]byte); ok && reflect.TypeOf(w).Kind() == reflect.String {
			h = string(b)
		}
		if !reflect.DeepEqual(h, w) {
			t.Errorf("%T.%s: have %v want %v", view, f, h, w)
		}
	}
}

func TestFileExtentView(t *testing.T) {
	fields := []string{"Generation", "RAMBytes", "Compression", "Encryption", "OtherEncoding", "Type", "DiskBytenr", "DiskNumBytes", "Offset", "NumBytes"}
	f := FileExtent{0x1112131415161718, 0x2122232425262728, 0x31, 0x32, 0x3334, FileExtentTypePrealloc, nil,
		0x4142434445464748, 0x5152535455565758, 0x6162636465666768, 0x7172737475767778}
	b := enc(FileExtentSize, &f)
	packed(t, b, struct {
		Generation, RAMBytes                       uint64
		Compression, Encryption                    uint8
		OtherEncoding                              uint16
		Type                                       uint8
		DiskBytenr, DiskNumBytes, Offset, NumBytes uint64
	}{f.Generation, f.RAMBytes, f.Compression, f.Encryption, f.OtherEncoding, f.Type, f.DiskBytenr, f.DiskNumBytes, f.Offset, f.NumBytes})
	same(t, f, FileExtentView(b), fields...)

	// The setters, one by one, on an item of other values: only their field changes.
	for _, name := range fields {
		other := FileExtent{Generation: 1, RAMBytes: 2, Compression: 3, Encryption: 4, OtherEncoding: 5,
			Type: FileExtentTypeReg, DiskBytenr: 6, DiskNumBytes: 7, Offset: 8, NumBytes: 9}
		p := enc(FileExtentSize, &other)
		v := reflect.ValueOf(f).FieldByName(name)
		reflect.ValueOf(FileExtentView(p)).MethodByName("Set" + name).Call([]reflect.Value{v})
		reflect.ValueOf(&other).Elem().FieldByName(name).Set(v)
		var have FileExtent
		have.Decode(p)
		if !reflect.DeepEqual(have, other) {
			t.Errorf("Set%s: have %+v want %+v", name, have, other)
		}
	}

	inline := FileExtent{Type: FileExtentTypeInline, Inline: []byte("data")}
	same(t, inline, FileExtentView(enc(inline.Size(), &inline)), "Type", "Inline")
}

func TestNameViews(t *testing.T) {
	d := DirItem{Location: Key{0x1112131415161718, 0x19, 0x2122232425262728}, Transid: 0x3132333435363738, Type: 0x39,
		Name: strings.Repeat("n", 258), Data: bytes.Repeat([]byte("d"), 515)}
	packed(t, enc(d.Size(), &d), struct {
		Objectid         uint64
		KeyType          uint8
		Offset, Transid  uint64
		DataLen, NameLen uint16
		Type             uint8
	}{d.Location.Objectid, d.Location.Type, d.Location.Offset, d.Transid, 515, 258, d.Type}, d.Name, string(d.Data))
	dv := DirItemView(append(enc(d.Size(), &d), "next"...))
	same(t, d, dv, "Location", "Transid", "Type", "Name", "Data")
	if dv.NameLen() != len(d.Name) || dv.DataLen() != len(d.Data) || dv.Size() != d.Size() {
		t.Errorf("DirItemView: have name %d data %d size %d", dv.NameLen(), dv.DataLen(), dv.Size())
	}
	r := InodeRef{0x1112131415161718, strings.Repeat("n", 258)}
	packed(t, enc(r.Size(), r), struct {
		Index   uint64
		NameLen uint16
	}{r.Index, 258}, r.Name)
	rv := InodeRefView(append(enc(r.Size(), r), "next"...))
	same(t, r, rv, "Index", "Name")
	if rv.NameLen() != len(r.Name) || rv.Size() != r.Size() {
		t.Errorf("InodeRefView: have name %d size %d", rv.NameLen(), rv.Size())
	}
	x := InodeExtref{0x1112131415161718, 0x2122232425262728, strings.Repeat("n", 258)}
	packed(t, enc(x.Size(), x), struct {
		Parent, Index uint64
		NameLen       uint16
	}{x.Parent, x.Index, 258}, x.Name)
	xv := InodeExtrefView(append(enc(x.Size(), x), "next"...))
	same(t, x, xv, "Parent", "Index", "Name")
	if xv.NameLen() != len(x.Name) || xv.Size() != x.Size() {
		t.Errorf("InodeExtrefView: have name %d size %d", xv.NameLen(), xv.Size())
	}
	root := RootRef{1, 2, strings.Repeat("n", 258)}
	packed(t, enc(RootRefSize+258, &root), struct {
		Dirid, Sequence uint64
		NameLen         uint16
	}{1, 2, 258}, root.Name)
	ov := RootRefView(append(enc(RootRefSize+len(root.Name), &root), "next"...))
	same(t, root, ov, "Name")
	if ov.NameLen() != len(root.Name) {
		t.Errorf("RootRefView: have name %d", ov.NameLen())
	}
}

func TestChunkView(t *testing.T) {
	c := Chunk{Length: 0x1112131415161718, Owner: 1, StripeLen: 0x2122232425262728, Type: 0x3132333435363738, IOAlign: 2,
		IOWidth: 3, SectorSize: 0x41424344, SubStripes: 4, Stripes: make([]Stripe, 0x102)}
	for i := range c.Stripes {
		c.Stripes[i].Offset = 0x5152535455560000 + uint64(i)
	}
	v := ChunkView(enc(c.Size(), &c))
	packed(t, v[:ChunkHeaderSize+StripeSize], struct {
		Length, Owner, StripeLen, Type uint64
		IOAlign, IOWidth, SectorSize   uint32
		NumStripes, SubStripes         uint16
		Devid, Offset                  uint64
		DevUUID                        UUID
	}{c.Length, 1, c.StripeLen, c.Type, 2, 3, c.SectorSize, 0x102, 4, 0, c.Stripes[0].Offset, UUID{}})
	same(t, c, v, "Length", "StripeLen", "Type", "SectorSize")
	if v.NumStripes() != len(c.Stripes) || v.StripeOffset(0x101) != c.Stripes[0x101].Offset {
		t.Errorf("have %d stripes, the last at 0x%x", v.NumStripes(), v.StripeOffset(0x101))
	}
}

func TestSuperView(t *testing.T) {
	s := Super{NodeSize: 0x11121314, CsumType: CsumSHA256, SysChunkArray: make([]byte, 0x123)}
	b := enc(SuperSize, &s)
	v, wantSum := superView(b), sha256.Sum256(b[32:])
	if v.magic() != Magic || v.leafSize() != s.NodeSize || v.csumType() != s.CsumType || v.sysChunkArraySize() != 0x123 ||
		!bytes.Equal(b[:32], wantSum[:]) || !SuperCsumOK(b) {
		t.Errorf("have magic 0x%x leafsize 0x%x csum type 0x%x array of 0x%x csum 0x%x", v.magic(), v.leafSize(), v.csumType(),
			v.sysChunkArraySize(), b[:32])
	}
}
