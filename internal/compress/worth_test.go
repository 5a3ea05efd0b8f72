package compress

import (
	"math/rand/v2"
	"testing"

	"btrlab/internal/format"
)

// TestWorth asks about data of each kind that a question of the heuristic is for.
func TestWorth(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	make := func(of func(i int) byte) []byte {
		p := make([]byte, MaxLen)
		for i := range p {
			p[i] = of(i)
		}
		return p
	}
	// values makes n values equally frequent, and the others rare: one byte in rare, 0 is none.
	values := func(n, rare int) []byte {
		return make(func(int) byte {
			if rare > 0 && r.IntN(rare) == 0 {
				return byte(r.IntN(256))
			}
			return byte(r.IntN(n))
		})
	}
	noise := values(256, 0)
	half := append(noise[:MaxLen/2:MaxLen/2], noise[:MaxLen/2]...)
	for _, c := range []struct {
		name string
		data []byte
		want bool
	}{
		{"zeros", make(func(int) byte { return 0 }), true},
		{"nothing to sample", noise[:15], true},
		{"noise", noise, false},
		{"noise twice", half, true},
		{"noise between the samples", make(func(i int) byte {
			if i%256 < 16 {
				return byte(i >> 12)
			}
			return noise[i]
		}), true},
		{"63 values", values(63, 0), true},
		{"64 values", values(64, 0), true},
		{"60 values and some others", values(60, 40), true},
		{"70 values and some others", values(70, 12), false},
		{"150 values", values(150, 0), false},
		{"the lower the likelier", make(func(int) byte { return byte(min(r.IntN(256), r.IntN(256), r.IntN(256), r.IntN(256))) }), false},
		{"much lower", make(func(int) byte {
			if r.IntN(8) > 0 {
				return byte(r.IntN(3))
			}
			return byte(r.IntN(256))
		}), true},
	} {
		if have := Worth(c.data); have != c.want {
			t.Errorf("%s: %v", c.name, have)
		}
	}
}

// TestProperty reads the values that Linux takes for btrfs.compression.
func TestProperty(t *testing.T) {
	for value, want := range map[string]uint8{"zlib": format.CompressZlib, "lzo": format.CompressLZO, "zstd": format.CompressZstd,
		"zstd:5": format.CompressZstd, "lzop": format.CompressLZO, "": 0, "none": 0, "no": 0} {
		if have, ok := Property(value); !ok || have != want {
			t.Errorf("%q: have %d, %v want %d", value, have, ok, want)
		}
	}
	for _, value := range []string{"zl", "gzip", "nonex", " zlib", "ZLIB", "n"} {
		if _, ok := Property(value); ok {
			t.Errorf("%q is taken", value)
		}
	}
	for value, want := range map[string]uint64{"zlib": format.InodeCompress, "no": format.InodeNoCompress, "": 0} {
		if have := PropertyFlags(value); have != want {
			t.Errorf("%q: flags %#x want %#x", value, have, want)
		}
	}
}
