package app

import (
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"btrlab/internal/prose"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
)

// A search says nothing for statusAfter. Then a line on standard error tells how far it is: on a
// terminal one that is written over, elsewhere a new one every statusEvery.
const (
	statusAfter = 2 * time.Second
	statusEvery = 10 * time.Second
)

// Status tells how far a search is, or one of several.
type Status struct {
	mu       sync.Mutex // searches by several workers tell at the same time
	w        io.Writer
	Terminal bool
	name     string // of the search
	after    time.Duration
	width    int // of the line on the terminal
}

// NewStatus tells on standard error how far searches are.
func (a *Run) NewStatus() *Status {
	return &Status{w: a.Err, Terminal: IsTerminal(a.Err), after: statusAfter}
}

// Search says that the search of the given name is next, or goes on.
func (s *Status) Search(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name != s.name {
		s.name, s.after = name, statusAfter
	}
}

// Progress is explore.Config.Progress.
func (s *Status) Progress(p explore.Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tell(p.Took, func() string { return statusLine(s.name, p) })
}

// Parallel changes o to tell how many of the searches that run at the same time are done. It
// returns the function that is told the number.
func (s *Status) Parallel(o *scenario.Options) func(done, all int) {
	start, config := time.Now(), o.Config
	var line string // protected by s.mu
	o.Config = func(c *explore.Config) {
		config(c)
		c.Progress = func(explore.Progress) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.tell(time.Since(start), func() string { return line })
		}
	}
	return func(done, all int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		line = fmt.Sprintf("%d of %d searches done", done, all)
	}
}

// tell tells line at the given time of a search. s.mu is held.
func (s *Status) tell(took time.Duration, line func() string) {
	switch {
	case took < s.after:
	case s.Terminal:
		s.write(line())
	default:
		fmt.Fprintln(s.w, line())
		s.after = took - took%statusEvery + statusEvery
	}
}

// write puts a line over the last one.
func (s *Status) write(line string) {
	n := utf8.RuneCountInString(line)
	fmt.Fprintf(s.w, "\r%s%s", line, strings.Repeat(" ", max(0, s.width-n)))
	s.width = n
}

// Show puts a line on the terminal, where there is one, until done or the next line.
func (s *Status) Show(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Terminal {
		s.write(line)
	}
}

// Done takes the line away.
func (s *Status) Done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.width > 0 {
		fmt.Fprintf(s.w, "\r%s\r", strings.Repeat(" ", s.width))
		s.width = 0
	}
}

// statusLine is how far a search is, in a line that is shorter than 80 characters: a terminal
// begins a new line after the last.
func statusLine(name string, p explore.Progress) string {
	line := roughly(float64(p.Schedules), 3)
	if p.Total > 0 {
		line += " of about " + roughly(p.Total, 2)
	}
	line += " schedules"
	if p.Preemptions >= 0 {
		line += fmt.Sprintf(", bound %d: %d %%", p.Preemptions, int(100*p.Level))
	}
	if sec := p.Took.Seconds(); sec > 0 {
		line += fmt.Sprintf(", %s/s", roughly(float64(p.Schedules)/sec, 2))
	}
	line += ", " + clock(p.Took)
	if p.Left > 0 {
		line += ", left " + clock(p.Left)
	}
	room := prose.Width - 1 - utf8.RuneCountInString(line) - 2
	switch n := utf8.RuneCountInString(name); {
	case n == 0 || n > room && room < 8:
		return line
	case n > room:
		name = string([]rune(name)[:room-2]) + ".."
	}
	return name + ": " + line
}

// roughly is a count to so many digits; from a million on with a unit.
func roughly(n float64, digits int) string {
	n = math.Round(n)
	if unit := math.Pow(10, math.Ceil(math.Log10(max(n, 1)))-float64(digits)); unit > 1 && n >= 1000 {
		n = math.Round(n/unit) * unit
	}
	switch {
	case n >= 1e15:
		return "1000T+"
	case n >= 1e12:
		return fmt.Sprintf("%gT", n/1e12)
	case n >= 1e9:
		return fmt.Sprintf("%gG", n/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%gM", n/1e6)
	}
	return fmt.Sprintf("%.0f", n)
}

// clock is a time in minutes and seconds, or in hours.
func clock(d time.Duration) string {
	switch s := int64(math.Round(d.Seconds())); {
	case d > 99*time.Hour:
		return "99 h+"
	case s >= 3600:
		return fmt.Sprintf("%d:%02d h", s/3600, s/60%60)
	default:
		return fmt.Sprintf("%d:%02d", s/60, s%60)
	}
}
