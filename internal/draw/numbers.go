package draw

import (
	"fmt"
	"strings"
	"time"
)

// Nanos prints a latency with three figures: 412us, 1.21ms.
func Nanos(ns float64) string {
	d := time.Duration(ns)
	switch {
	case d >= 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d >= time.Second:
		return fmt.Sprintf("%.2fs", d.Seconds())
	case d >= 100*time.Millisecond:
		return fmt.Sprintf("%.0fms", ns/1e6)
	case d >= 10*time.Millisecond:
		return fmt.Sprintf("%.1fms", ns/1e6)
	case d >= time.Millisecond:
		return fmt.Sprintf("%.2fms", ns/1e6)
	case d >= 100*time.Microsecond:
		return fmt.Sprintf("%.0fus", ns/1e3)
	case d >= 10*time.Microsecond:
		return fmt.Sprintf("%.1fus", ns/1e3)
	case d >= time.Microsecond:
		return fmt.Sprintf("%.2fus", ns/1e3)
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
