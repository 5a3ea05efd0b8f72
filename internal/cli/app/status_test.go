package app

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"btrlab/internal/sched/explore"
)

// A search is told after two seconds: every ten where nobody looks at a terminal, and on one in a
// line that is written over and taken away.
func TestStatus(t *testing.T) {
	var b bytes.Buffer
	s := New(nil, nil, &b).NewStatus()
	s.Search("truncate-race")
	at := func(d time.Duration) {
		p := explore.Progress{Method: explore.DPOR, Schedules: int(d / time.Millisecond), Took: d, Preemptions: -1, Total: 51_234, Left: time.Minute - d}
		s.Progress(p)
	}
	for d := time.Duration(0); d <= 25*time.Second; d += 100 * time.Millisecond {
		at(d)
	}
	s.Done()
	want := `truncate-race: 2000 of about 51000 schedules, 1000/s, 0:02, left 0:58
truncate-race: 10000 of about 51000 schedules, 1000/s, 0:10, left 0:50
truncate-race: 20000 of about 51000 schedules, 1000/s, 0:20, left 0:40
`
	if b.String() != want {
		t.Errorf("have\n%swant\n%s", b.String(), want)
	}
	b.Reset()
	s.Terminal = true
	s.Search("a")
	at(time.Second)
	if b.Len() > 0 {
		t.Errorf("after a second: %q", b.String())
	}
	at(2 * time.Second)
	at(3 * time.Second)
	s.Done()
	first, second := "a: 2000 of about 51000 schedules, 1000/s, 0:02, left 0:58", "a: 3000 of about 51000 schedules, 1000/s, 0:03, left 0:57"
	if have, want := b.String(), "\r"+first+"\r"+second+"\r"+strings.Repeat(" ", len(second))+"\r"; have != want {
		t.Errorf("have %q\nwant %q", have, want)
	}
}

// What has no schedules to count is told in the same line of a terminal: over the last one, and
// nowhere else.
func TestStatusShow(t *testing.T) {
	var b bytes.Buffer
	s := New(nil, nil, &b).NewStatus()
	s.Show("candidate 10")
	if b.Len() > 0 {
		t.Errorf("not on a terminal: %q", b.String())
	}
	s.Terminal = true
	s.Show("candidate 10")
	s.Show("two")
	s.Done()
	if have, want := b.String(), "\rcandidate 10\rtwo         \r   \r"; have != want {
		t.Errorf("have %q want %q", have, want)
	}
}

func TestStatusLine(t *testing.T) {
	for _, c := range []struct {
		p    explore.Progress
		want string
	}{
		{explore.Progress{Schedules: 12_345, Total: 36_123, Preemptions: 2, Level: .419, Took: 6 * time.Second, Left: 11_600 * time.Millisecond},
			"12300 of about 36000 schedules, bound 2: 41 %, 2100/s, 0:06, left 0:12"},
		{explore.Progress{Schedules: 999, Preemptions: -1, Took: 61 * time.Second}, "cell of a matrix with a long name: 999 schedules, 16/s, 1:01"},
		{explore.Progress{Schedules: 123_456_789, Total: 9e15, Preemptions: 17, Level: 1, Took: 50 * time.Hour, Left: 1e6 * time.Hour},
			"123M of about 1000T+ schedules, bound 17: 100 %, 686/s, 50:00 h, left 99 h+"},
	} {
		have := statusLine("cell of a matrix with a long name", c.p)
		if len(have) > 79 || have != c.want {
			t.Errorf("have %d characters: %s\nwant %s", len(have), have, c.want)
		}
	}
}
