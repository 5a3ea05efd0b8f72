package format

import (
	"encoding/hex"
	"testing"
)

// TestCsumTypes holds each algorithm against its published test vector for "abc".
func TestCsumTypes(t *testing.T) {
	for _, c := range []struct {
		typ  CsumType
		want string // bytes in their order on disk
	}{
		{CsumCRC32C, "b73f4b36"},
		{CsumXXHash64, "990977adf52cbc44"},
		{CsumSHA256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
		{CsumBLAKE2b, "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319"},
	} {
		p := []byte("abc")
		sum := c.typ.Sum(p)
		n := c.typ.Size()
		if have := hex.EncodeToString(sum[:n]); have != c.want {
			t.Errorf("%v: have %s want %s", c.typ, have, c.want)
		}
		for _, b := range sum[n:] {
			if b != 0 {
				t.Errorf("%v: have %x after %d bytes want zeros", c.typ, sum[n:], n)
			}
		}
		if !c.typ.Match(sum[:n], p) {
			t.Errorf("%v does not match its own checksum", c.typ)
		}
		sum[n-1] ^= 1
		if c.typ.Match(sum[:n], p) {
			t.Errorf("%v matches a checksum whose last byte differs", c.typ)
		}
		if a := testing.AllocsPerRun(10, func() { c.typ.Match(sum[:], p) }); a != 0 {
			t.Errorf("%v: Match allocates %v times", c.typ, a)
		}
	}
	if u := CsumType(4); u.Known() || u.Size() != 0 || u.String() != "unknown (4)" || u.Match(make([]byte, 32), nil) {
		t.Errorf("type 4 is known as %v of %d bytes", u, u.Size())
	}
}

func TestSuperCsumTypes(t *testing.T) {
	for typ := CsumCRC32C; typ.Known(); typ++ {
		var s Super
		s.Decode(goodSuper())
		s.CsumType = typ
		b := enc(SuperSize, &s)
		if err := CheckSuper(b, 1<<30); err != nil {
			t.Errorf("%v: %v", typ, err)
		}
		SetBytenr(b, SuperMirror(1))
		if err := CheckSuperAt(b, 1<<30, SuperMirror(1)); err != nil {
			t.Errorf("%v, a copy: %v", typ, err)
		}
		b[SuperSize-1] ^= 1
		if CheckSuperAt(b, 1<<30, SuperMirror(1)) == nil {
			t.Errorf("%v: a changed byte passes", typ)
		}
	}
}
