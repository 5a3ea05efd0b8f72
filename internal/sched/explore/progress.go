package explore

import "time"

// Progress is how far a search has come. Config.Progress is told of it.
type Progress struct {
	Method         Method
	Schedules, Cut int
	Steps          int64
	Took           time.Duration
	// Preemptions is the level that Bound is at, and Level the estimated share of it that is done.
	// Other methods have no levels: -1 and 0.
	Preemptions int
	Level       float64
	// Total estimates the schedules of the whole search; a limit of schedules bounds it. 0 is not
	// known.
	Total float64
	// Left is the time until then, at the rate so far; a limit of time bounds it. 0 is not known.
	Left time.Duration
}

// progressEvery is the time between two calls of Config.Progress. The clock is looked at after
// every progressRuns-th execution.
const (
	progressEvery = 100 * time.Millisecond
	progressRuns  = 16
)

// made is how many executions were made.
func (s *search) made() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs
}

// due says that it is time to call Config.Progress.
func (s *search) due() bool {
	c := s.cfg
	if c.Progress == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.ProgressEvery > 0 {
		return s.runs%c.ProgressEvery == 0
	}
	if s.runs%progressRuns != 0 {
		return false
	}
	now := time.Now()
	if now.Sub(s.told) < progressEvery {
		return false
	}
	s.told = now
	return true
}

// estimates notes that a job will make so many executions in all; 0 is not known.
func (s *search) estimates(job int, whole float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wholes == nil {
		s.wholes = make([]float64, s.cfg.Jobs)
	}
	s.wholes[job] = whole
}

// tell calls Config.Progress.
func (s *search) tell() {
	c := s.cfg
	s.mu.Lock()
	p := Progress{Method: c.Method, Schedules: s.runs, Cut: s.cut, Steps: s.steps, Took: time.Since(s.start), Preemptions: -1}
	for _, n := range s.wholes {
		p.Total += n
	}
	if c.Method == Bound {
		p.Preemptions, p.Level = s.level, s.share
	}
	s.mu.Unlock()
	if n := float64(c.Schedules); n > 0 && (p.Total == 0 || p.Total > n) {
		p.Total = n
	}
	if p.Total > 0 && p.Schedules > 0 {
		p.Left = time.Duration(float64(p.Took) * max(0, p.Total/float64(p.Schedules)-1))
	}
	if !s.until.IsZero() {
		if left := max(0, time.Until(s.until)); p.Total == 0 || left < p.Left {
			p.Left = left
		}
	}
	c.Progress(p)
}
