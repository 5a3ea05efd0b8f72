package fio

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// A value error says what was expected; parse adds option, file and line.
type wantError string

func (e wantError) Error() string { return "want " + string(e) }

const wantSize = wantError("a size in bytes such as 4096, 4k or 1g")

// parseSize reads an amount of bytes as fio does with kb_base=1024: k, kb and ki are 1024, and so
// on up to p; kib, mib, ... are powers of 1000 there, which is fio's compatibility with its first
// scripts.
func parseSize(s string) (int64, error) {
	l := strings.ToLower(strings.TrimSpace(s))
	if h, ok := strings.CutPrefix(l, "0x"); ok {
		n, err := strconv.ParseInt(h, 16, 64)
		if err != nil || n < 0 {
			return 0, wantSize
		}
		return n, nil
	}
	i := 0
	for i < len(l) && l[i] >= '0' && l[i] <= '9' {
		i++
	}
	n, err := strconv.ParseInt(l[:i], 10, 64)
	if err != nil {
		return 0, wantSize
	}
	unit := l[i:]
	base := int64(1024)
	if strings.HasSuffix(unit, "ib") {
		base = 1000
		unit = strings.TrimSuffix(unit, "ib")
	} else {
		unit = strings.TrimSuffix(strings.TrimSuffix(unit, "b"), "i")
	}
	p := 0
	if unit != "" {
		p = strings.Index("kmgtp", unit) + 1
		if p == 0 || len(unit) != 1 {
			return 0, wantSize
		}
	} else if strings.HasSuffix(l, "i") || strings.HasSuffix(l, "ib") {
		return 0, wantSize
	}
	for ; p > 0; p-- {
		if n > math.MaxInt64/base {
			return 0, wantError("a size below 8 EiB")
		}
		n *= base
	}
	return n, nil
}

// parsePercent reads "20%"; ok is false when s has no percent sign.
func parsePercent(s string) (pct int, ok bool, err error) {
	v, ok := strings.CutSuffix(strings.TrimSpace(s), "%")
	if !ok {
		return 0, false, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > 100 {
		return 0, true, wantError("1% to 100%")
	}
	return n, true, nil
}

func parseTime(s string) (time.Duration, error) { return parseTimeIn(s, time.Second) }

// parseTimeIn is parseTime for an option whose numbers without a unit are in plain.
func parseTimeIn(s string, plain time.Duration) (time.Duration, error) {
	const want = wantError("a time such as 30, 30s, 500ms, 2m or 1h")
	l := strings.ToLower(strings.TrimSpace(s))
	i := 0
	for i < len(l) && l[i] >= '0' && l[i] <= '9' {
		i++
	}
	n, err := strconv.ParseInt(l[:i], 10, 64)
	if err != nil {
		return 0, want
	}
	if strings.HasPrefix(l[i:], ".") { // fio takes it for what is before the point
		return 0, wantError("a whole number, such as 500ms for 0.5s")
	}
	var u time.Duration
	switch l[i:] {
	case "":
		u = plain
	case "s", "sec":
		u = time.Second
	case "us", "usec":
		u = time.Microsecond
	case "ms", "msec":
		u = time.Millisecond
	case "m":
		u = time.Minute
	case "h":
		u = time.Hour
	case "d":
		u = 24 * time.Hour
	default:
		return 0, want
	}
	if n > int64(math.MaxInt64/u) {
		return 0, wantError("a time below 292 years")
	}
	return time.Duration(n) * u, nil
}

func parseBool(v string) (bool, error) {
	switch v {
	case "", "1":
		return true, nil
	case "0":
		return false, nil
	}
	return false, wantError("0 or 1")
}

// parseInt reads a count; fio lets counts have size suffixes too.
func parseInt(v string, lo, hi int64) (int64, error) {
	n, err := parseSize(v)
	if err != nil || n < lo || n > hi {
		return 0, wantError(fmt.Sprintf("a number from %d to %d", lo, hi))
	}
	return n, nil
}
