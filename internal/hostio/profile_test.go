package hostio

import "testing"

// The time of a function is that of the samples in it or below it, once each, but for those below a
// function that has a time of its own.
func TestWithin(t *testing.T) {
	p := &Profile{Nanos: 500}
	p.Add(&Profile{Nanos: 500, Seconds: 1, Counts: map[string]uint64{"a:b": 2}, Stacks: [][]string{
		{"memcpy", "copy", "search", "write"},
		{"bin_search", "search", "write"},
		{"search", "write"},
		{"search", "helper", "search"}, // once
		{"write"},
	}})
	p.Add(&Profile{Nanos: 500, Seconds: 2, Counts: map[string]uint64{"a:b": 3}, Stacks: [][]string{{"copy", "search"}, nil}})
	for _, c := range []struct {
		in, less []string
		want     int
	}{
		{[]string{"search"}, nil, 5},
		{[]string{"search"}, []string{"copy"}, 3},
		{[]string{"copy"}, nil, 2},
		{[]string{"copy"}, []string{"search"}, 2}, // search is above it
		{[]string{"write", "copy"}, nil, 5},
		{[]string{"none"}, nil, 0},
	} {
		ns, n := p.Within(c.in, c.less)
		if n != c.want || ns != float64(c.want)*500 {
			t.Errorf("%v less %v: %d samples, %g ns, want %d", c.in, c.less, n, ns, c.want)
		}
	}
	if p.Counts["a:b"] != 5 || p.Seconds != 3 {
		t.Errorf("%+v", p)
	}
}
