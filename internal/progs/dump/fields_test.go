package dump

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/format"
)

// Each field of a layout is where the dump, by the codec, has it: set to a value of its own, it is
// printed after the word.
func TestFieldsShown(t *testing.T) {
	for typ, l := range layouts {
		it, _ := format.ItemTypeOf(typ)
		b := make([]byte, l.Size)
		if typ == format.EXTENT_DATA_KEY {
			b[20] = format.FileExtentTypeReg
		}
		l, _ = LayoutOf(typ, b)
		if i := slices.IndexFunc(l.Fields, func(f Field) bool { return f.Kind == Text }); i >= 0 {
			b = l.Fields[i].SetText(b, "n")
		}
		want := map[string]string{}
		for i, f := range l.Fields {
			v := fmt.Sprint(70 + i)
			switch {
			case f.Kind == Text || f.Name == "name_len" || f.Name == "data_len" || f.Name == "num_stripes":
				continue // they go with each other
			case f.Kind == UUIDs:
				v = fmt.Sprintf("%08x-0000-0000-0000-000000000001", i)
			case f.Kind == Octal:
				v = "40755"
			case f.Kind == Keys:
				v = fmt.Sprintf("(%d INODE_ITEM %d)", 300+i, i)
			case f.Name == "type" && typ == format.EXTENT_DATA_KEY:
				v = "1"
			}
			if err := f.Set(b, v); err != nil {
				t.Errorf("%s %s: %v", it.Name, f.Name, err)
			}
			if got, ok := f.Get(b); !ok || got != v {
				t.Errorf("%s %s: have %s want %s", it.Name, f.Name, got, v)
			}
			if word := cmp.Or(f.Shown, f.Name); word != "-" {
				want[word] = v
			}
		}
		if typ == format.CHUNK_ITEM_KEY {
			b[44] = 1
		}
		var out strings.Builder
		(&dumper{w: &out}).item(format.Key{Objectid: format.DEV_STATS_OBJECTID, Type: typ}, b)
		for word, v := range want {
			if !regexp.MustCompile(`\b` + regexp.QuoteMeta(word) + ` (key )?` + regexp.QuoteMeta(v) + `\b`).MatchString(out.String()) {
				t.Errorf("%s: no %s %s in\n%s", it.Name, word, v, out.String())
			}
		}
	}
}

// The fields of a layout whose names are those of a struct are where its codec has them: it decodes
// the same values.
func TestFieldsDecoded(t *testing.T) {
	plain := strings.NewReplacer("_", "", ".", "")
	for typ, v := range map[uint8]interface{ Decode(b []byte) }{format.INODE_ITEM_KEY: &format.InodeItem{}, format.ROOT_ITEM_KEY: &format.RootItem{}, format.EXTENT_ITEM_KEY: &format.ExtentItem{},
		format.BLOCK_GROUP_ITEM_KEY: &format.BlockGroupItem{}, format.DEV_ITEM_KEY: &format.DevItem{}, format.DEV_EXTENT_KEY: &format.DevExtent{}, format.EXTENT_DATA_KEY: &format.FileExtent{},
		format.QGROUP_STATUS_KEY: &format.QgroupStatus{}, format.CHUNK_ITEM_KEY: &format.Chunk{}} {
		l := layouts[typ]
		n := 0
		for i, f := range l.Fields {
			if f.Kind == UUIDs || f.Kind == Keys {
				continue
			}
			b := make([]byte, l.Size)
			if typ == format.EXTENT_DATA_KEY {
				b[20] = format.FileExtentTypeReg
			}
			if typ == format.CHUNK_ITEM_KEY {
				if b[44] = 1; f.Name == "num_stripes" {
					continue
				}
			}
			value := uint64(2 + i%2) // fits all
			if err := f.Set(b, fmt.Sprint(value)); err != nil {
				t.Fatal(err)
			}
			v.Decode(b)
			s := reflect.ValueOf(v).Elem()
			for k := range s.NumField() {
				name := strings.ToLower(s.Type().Field(k).Name)
				field := s.Field(k)
				if name != plain.Replace(f.Name) || !field.CanUint() {
					continue
				}
				n++
				if field.Uint() != value {
					t.Errorf("type %d %s: decoded %d want %d", typ, f.Name, field.Uint(), value)
				}
			}
		}
		if n < 3 {
			t.Errorf("type %d: only %d fields are known by their names", typ, n)
		}
	}
}

// Each field of a superblock is where the codec has it: the dump prints what it was set to.
func TestSuperFields(t *testing.T) {
	for i, f := range SuperFields() {
		if f.Shown == "-" || f.Name == "sys_array_size" {
			continue
		}
		b := make([]byte, format.SuperSize)
		v := fmt.Sprint(1 + i%2)
		if f.Kind == UUIDs {
			v = fmt.Sprintf("%08x-0000-0000-0000-000000000001", i+1)
		}
		if err := f.Set(b, v); err != nil {
			t.Fatal(err)
		}
		s := format.DecodeSuper(b)
		var out strings.Builder
		(superDump{&out}).fields(&s, b)
		(superDump{&out}).device(&s)
		if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(f.Name) + `\t+` + v + `\b`).MatchString(out.String()) {
			t.Errorf("no %s %s in\n%s", f.Name, v, out.String())
		}
	}
}

// Keys are read as they are printed; what is none is said.
func TestParseKey(t *testing.T) {
	keys := []format.Key{{}, format.MaxKey, {Objectid: format.DEV_STATS_OBJECTID, Type: format.PERSISTENT_ITEM_KEY, Offset: 1},
		{Objectid: format.DEV_ITEMS_OBJECTID, Type: format.DEV_ITEM_KEY, Offset: 1}, {Objectid: math.MaxUint64 - 9, Type: format.EXTENT_CSUM_KEY, Offset: 7},
		{Type: format.QGROUP_INFO_KEY, Offset: 1<<48 | 5}, {Objectid: 77, Type: format.UUID_KEY_SUBVOL, Offset: math.MaxUint64 - 3}}
	for typ := range 256 {
		keys = append(keys, format.Key{Objectid: 1 << 40, Type: uint8(typ), Offset: 9}, format.Key{Objectid: 5, Type: uint8(typ)})
	}
	for _, k := range keys {
		if have, err := ParseKey(Key(k)); err != nil || have != k {
			t.Errorf("%s: have %v, %v, want %v", Key(k), have, err, k)
		}
	}
	for _, bad := range []string{"", "257", "(257 INODE_ITEM)", "(257 INODE 0)", "(x INODE_ITEM 0)", "(1 INODE_ITEM 99999999999999999999)", "(1 300 0)", "1 2 3 4"} {
		if k, err := ParseKey(bad); err == nil || !strings.HasPrefix(err.Error(), "want ") {
			t.Errorf("%q: have %v, %v", bad, k, err)
		}
	}
}

// What does not fit is refused, and changes nothing.
func TestFieldSet(t *testing.T) {
	l, _ := LayoutOf(format.INODE_ITEM_KEY, nil)
	b := make([]byte, l.Size)
	for _, c := range []struct{ field, value, err string }{
		{"nlink", "0x10", ""}, {"nlink", "-1", ""}, {"nlink", "4294967296", "want a number of 32 bits"}, {"mode", "100648", "want an octal number"}, {"size", "", "want a number"}, {"size", "1k", "want a number"},
	} {
		i := slices.IndexFunc(l.Fields, func(f Field) bool { return f.Name == c.field })
		before := slices.Clone(b)
		err := l.Fields[i].Set(b, c.value)
		if (err == nil) != (c.err == "") || err != nil && (!strings.Contains(err.Error(), c.err) || !slices.Equal(before, b)) {
			t.Errorf("%s=%s: %v, want %q", c.field, c.value, err, c.err)
		}
	}
	if v, _ := l.Fields[5].Get(b); v != "4294967295" {
		t.Errorf("nlink -1 is %s", v)
	}
	if v, _ := l.Fields[6].Get(b); v != "0" {
		t.Errorf("%s has become %s", l.Fields[6].Name, v)
	}
	for word, value := range map[string]string{"160": "00", "159": "0000", "x": "00", "1": "", "2": "0g"} {
		if _, err := SetBytes(b, word, value); err == nil {
			t.Errorf("@%s=%s is taken", word, value)
		}
	}
}
