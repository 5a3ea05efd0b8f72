package script

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// Size is a flag value in bytes: "4096", "4k", "1G", "1GiB".
type Size struct {
	N     int64 // bytes
	Given bool  // on the command line
}

func (b *Size) String() string {
	if !b.Given && b.N == 0 {
		return ""
	}
	return FormatSize(b.N)
}

func (b *Size) Type() string { return "size" }

func (b *Size) Set(s string) error {
	n, err := ParseSize(s)
	if err == nil {
		b.N, b.Given = n, true
	}
	return err
}

// ParseSize reads a number of bytes with an optional binary suffix.
func ParseSize(s string) (int64, error) {
	num := s
	shift := 0
	low := strings.ToLower(s)
	low = strings.TrimSuffix(strings.TrimSuffix(low, "b"), "i")
	if low != "" {
		if i := strings.IndexByte("kmgtpe", low[len(low)-1]); i >= 0 {
			shift = 10 * (i + 1)
			low = low[:len(low)-1]
		}
		num = low
	}
	n, err := strconv.ParseUint(num, 10, 64)
	if err != nil || n > 0 && shift+bits.Len64(n) > 63 {
		return 0, fmt.Errorf("%q is not a size, want bytes or a number with k, M, G or T", s)
	}
	return int64(n << shift), nil
}

// FormatSize shows n in the largest binary unit that divides it.
func FormatSize(n int64) string {
	for i, u := range []string{"T", "G", "M", "k"} {
		if unit := int64(1) << (10 * (4 - i)); n >= unit && n%unit == 0 {
			return strconv.FormatInt(n/unit, 10) + u
		}
	}
	return strconv.FormatInt(n, 10)
}
