package draw

import (
	"fmt"
	"math"
	"strings"
)

// Nanos prints a latency with three figures: 412us, 1.21ms.
func Nanos(ns float64) string {
	for _, u := range []struct {
		ns   float64
		name string
		most int // digits after the point of 100 and more
	}{{1e9, "s", 1}, {1e6, "ms", 0}, {1e3, "us", 0}} {
		switch v := math.Trunc(ns) / u.ns; {
		case v >= 100:
			return fmt.Sprintf("%.*f%s", u.most, ns/u.ns, u.name)
		case v >= 10:
			return fmt.Sprintf("%.1f%s", ns/u.ns, u.name)
		case v >= 1:
			return fmt.Sprintf("%.2f%s", ns/u.ns, u.name)
		}
	}
	return fmt.Sprintf("%.0fns", ns)
}

// Count prints a number with a thousands separator.
func Count(v float64) string {
	s := fmt.Sprintf("%.0f", v)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Time is Nanos in print: a space before the unit, and a Greek letter.
func Time(ns float64) string {
	v := Nanos(ns)
	i := strings.IndexFunc(v, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	return v[:i] + "\u202f" + strings.Replace(v[i:], "us", "µs", 1)
}
