package fs

import "testing"

// TestBound: what follows from a bound on memory, and what was set before stays.
func TestBound(t *testing.T) {
	for _, c := range []struct {
		name     string
		in, want Options
	}{
		{"none", Options{Memory: NoLimit}, Options{Memory: NoLimit}},
		{"small", Options{Memory: 32 << 20},
			Options{Memory: 32 << 20, CacheLimit: 24 << 20, DirtyLimit: 12 << 20, CacheBlocks: 256, CacheInodes: 1024, DirtyMetadata: 4 << 20}},
		{"large", Options{Memory: 16 << 30},
			Options{Memory: 16 << 30, CacheLimit: 12 << 30, DirtyLimit: DefaultDirtyLimit, CacheBlocks: DefaultCacheBlocks, CacheInodes: DefaultCacheInodes, DirtyMetadata: maxDirtyMetadata}},
		{"tiny", Options{Memory: 1}, Options{Memory: 1, CacheLimit: minMemory / 4 * 3, DirtyLimit: minMemory / 8 * 3, CacheBlocks: minBlocks, CacheInodes: minInodes, DirtyMetadata: minDirtyMetadata}},
		{"more dirty than pages", Options{Memory: 32 << 20, DirtyLimit: 64 << 20, CacheBlocks: 7, CacheInodes: 8, DirtyMetadata: 9},
			Options{Memory: 32 << 20, CacheLimit: 128 << 20, DirtyLimit: 64 << 20, CacheBlocks: 7, CacheInodes: 8, DirtyMetadata: 9}},
	} {
		o := c.in
		o.bound(16384)
		if o.Memory != c.want.Memory || o.CacheLimit != c.want.CacheLimit || o.DirtyLimit != c.want.DirtyLimit ||
			o.CacheBlocks != c.want.CacheBlocks || o.CacheInodes != c.want.CacheInodes || o.DirtyMetadata != c.want.DirtyMetadata {
			t.Errorf("%s: have %+v want %+v", c.name, o, c.want)
		}
	}
	for text, want := range map[string]int64{
		"MemTotal:       2097152 kB\nMemFree: 1 kB\n":  512 << 20,
		"MemFree: 1 kB\nMemTotal:       67108864 kB\n": 1 << 30,
		"": 1 << 30,
	} {
		if have := defaultMemory(text); have != want {
			t.Errorf("a quarter of %q: have %d want %d", text, have, want)
		}
	}
}
