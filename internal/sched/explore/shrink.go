package explore

import "time"

// shrinkSchedules bounds the search for a schedule with fewer preemptions: by what it does, so that
// the answer is the same on every machine.
const shrinkSchedules = 5000

// shrink makes the violating schedule shorter: first a search with fewer preemptions, then
// deviations are left out one by one. What it keeps is the kind of violation.
func (s *search) shrink() {
	if s.cfg.Method != Bound && len(s.sched) > 0 {
		c := *s.cfg
		c.Method, c.All, c.NoShrink, c.Done, c.Progress, c.Jobs, c.Shards, c.Shard = Bound, false, true, nil, nil, 1, 1, 0
		c.Preemptions = s.pre
		if s.pre == 0 {
			c.Preemptions = -1
		}
		c.Schedules, c.Time = shrinkSchedules, 0
		b := &search{cfg: &c, prog: s.prog, start: time.Now(), pre: -1}
		defer b.close()
		b.byQueue()
		if b.viol != nil && b.viol.Kind == s.viol.Kind && (b.pre < s.pre || b.pre == s.pre && len(b.sched) < len(s.sched)) {
			s.viol, s.sched, s.pre = b.viol, b.sched, b.pre
		}
	}
	w := s.world()
	defer s.retire(w)
	try := func(devs schedule) bool {
		w.order = &orderGraph{}
		s.execute(w, &follow{devs: devs, lenient: true})
		if w.viol == nil || w.viol.Kind != s.viol.Kind {
			return false
		}
		got, pre := w.schedule(), w.preemptions()
		if pre > s.pre || pre == s.pre && len(got) >= len(s.sched) {
			return false
		}
		s.viol, s.sched, s.pre = w.viol, got, pre
		return true
	}
	for tries := 0; tries < 500; {
		progress := false
		for size := max(1, len(s.sched)/2); size >= 1 && tries < 500; size /= 2 {
			for i := 0; i+size <= len(s.sched) && tries < 500; i++ {
				tries++
				without := append(append(schedule{}, s.sched[:i]...), s.sched[i+size:]...)
				if try(without) {
					progress = true
					i--
				}
			}
		}
		if !progress {
			break
		}
	}
}
