package judges

import (
	"slices"
	"strings"
	"testing"

	"btrlab/internal/study/grade"
)

// TestCount: rows that the starter passes count together with one that it fails.
func TestCount(t *testing.T) {
	for _, tt := range []struct {
		pass string // rows of lab 5
		want float64
	}{
		{"", 0},
		{"lock-identical", 0},
		{"lock-identical lock-nested", 0},
		{"lock-touching", 10},
		{"lock-touching lock-identical", 20},
		{"virtual-time lock-nested lock-identical", 30},
	} {
		rows := []grade.Row{{Name: "lock-identical", Max: 10}, {Name: "lock-nested", Max: 10}, {Name: "lock-touching", Max: 10}, {Name: "virtual-time", Max: 10}}
		for i := range rows {
			if rows[i].Pass = slices.Contains(strings.Fields(tt.pass), rows[i].Name); rows[i].Pass {
				rows[i].Score = rows[i].Max
			}
		}
		count(RangeLock{}, rows)
		if have := scored(rows); have != tt.want {
			t.Errorf("%q: have %g points, want %g", tt.pass, have, tt.want)
		}
	}
}

// TestGuesses: a wrong never takes the points of a right one, and of what nobody calls never
// nothing is taken.
func TestGuesses(t *testing.T) {
	rows := func() []grade.Row {
		return []grade.Row{{Name: "a", Pass: true, Score: 3, Max: 3}, {Name: "b", Pass: true, Score: 3, Max: 3}, {Name: "c", Max: 3}, {Name: "d", Pass: true, Score: 3, Max: 3}}
	}
	for _, tt := range []struct {
		said map[string]string
		want float64
	}{
		{map[string]string{"a": "never", "b": "never", "c": "4:1", "d": "2:0"}, 9},
		{map[string]string{"a": "never", "b": "never", "c": "never", "d": "2:0"}, 6},
		{map[string]string{"a": " Never", "b": "1:1", "c": "never", "d": "2:0"}, 6},
		{map[string]string{"a": "1:2", "b": "1:1", "c": "never", "d": "2:0"}, 9},
		{nil, 9},
	} {
		l := rows()
		if guesses(l, tt.said); scored(l) != tt.want {
			t.Errorf("%v: have %g points want %g: %+v", tt.said, scored(l), tt.want, l)
		}
	}
}
