package script

import (
	"testing"
)

func TestParseSize(t *testing.T) {
	for s, want := range map[string]int64{"0": 0, "4096": 4096, "4k": 4096, "4K": 4096, "1M": 1 << 20, "1MiB": 1 << 20, "2G": 2 << 30, "2GB": 2 << 30,
		"7E": 7 << 60, "9223372036854775807": 1<<63 - 1} {
		if got, err := ParseSize(s); got != want || err != nil {
			t.Errorf("ParseSize(%q) = %d, %v, want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "k", "-1", "1.5G", "8E", "9223372036854775808", "4q", "4 k", "0x10"} {
		if got, err := ParseSize(s); err == nil {
			t.Errorf("ParseSize(%q) = %d, want an error", s, got)
		}
	}
}
