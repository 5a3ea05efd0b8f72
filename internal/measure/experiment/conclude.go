package experiment

import (
	"fmt"
	"strings"

	"btrlab/internal/draw"
	"btrlab/internal/measure/stats"
	"btrlab/internal/prose"
)

// Conclusion is what the comparison shows, in a sentence or two: the ratios that were asked for, or
// the fastest row beside the baseline. It is empty when there is nothing to compare.
func (r *Result) Conclusion() string {
	if len(r.Pairs) > 0 {
		var all []string
		for i := range r.Pairs {
			if s := r.Pairs[i].conclusion(); s != "" {
				all = append(all, s)
			}
		}
		return strings.Join(all, " ")
	}
	var base, best *Row
	for _, row := range r.Rows {
		switch {
		case row.Policy == r.Baseline:
			base = row
		case best == nil || row.Ratio > best.Ratio:
			best = row
		}
	}
	switch {
	case base == nil || best == nil || base.IOPS == 0 || best.IOPS == 0:
		return ""
	case best.Sure == nil:
		return fmt.Sprintf("%s did the most: %.2f times the iops of %s. One round says nothing of the spread.", best.Policy, best.Ratio, base.Policy)
	case best.Sure.Low <= 1:
		return fmt.Sprintf("Nothing is faster than %s beyond the spread of the rounds: %s has %.2f (%v). %s", base.Policy, best.Policy, best.Ratio, best.Sure,
			best.Wanted())
	}
	s := fmt.Sprintf("%s does %.2f times the iops of %s (%v)", best.Policy, best.Ratio, base.Policy, best.Sure)
	var tied []string
	for _, row := range r.Rows {
		if row != best && row != base && !stats.Compare(best.RoundIOPS, row.RoundIOPS).Differs() {
			tied = append(tied, row.Policy)
		}
	}
	if len(tied) > 0 {
		return fmt.Sprintf("%s. Beside it %s cannot be told from it: the difference is within the spread.", s, prose.List(tied))
	}
	if len(r.Rows) > 2 {
		s += ", more than any other"
	}
	return fmt.Sprintf("%s. One request in a hundred takes %s or longer; with %s it is %s.", s, draw.Time(float64(best.Clat.P99)), base.Policy,
		draw.Time(float64(base.Clat.P99)))
}

func (p *PairRatio) conclusion() string {
	if p.Ratio == 0 {
		return ""
	}
	var published string
	if p.Published > 0 {
		published = fmt.Sprintf("; %.2f was published", p.Published)
	}
	return p.Sentence(p.Row, "iops", p.To, published)
}

// Bounds of Notes.
const (
	roundsApart  = 1.5  // the fastest round of a row by its slowest
	longestShare = 0.25 // the longest request as a part of a run
	roomShare    = 0.1  // the wait for room as a part of the writers' time
)

// Notes say what makes the figures worth less: a run that is shorter than what it measures, rounds
// that differ, a job that has not seen all of its file, an image without room for what is dirty.
func (r *Result) Notes() (notes []string) {
	longest, apart, tight := (*Row)(nil), (*Row)(nil), (*Row)(nil)
	for _, row := range r.Rows {
		if row.Clat.Max > int64(longestShare*r.Runtime*1e9) && (longest == nil || row.Clat.Max > longest.Clat.Max) {
			longest = row
		}
		if row.apart() > roundsApart && (apart == nil || row.apart() > apart.apart()) {
			apart = row
		}
		if row.Waits[roomWait] > roomShare && (tight == nil || row.Waits[roomWait] > tight.Waits[roomWait]) {
			tight = row
		}
	}
	if longest != nil && r.Runtime > 0 {
		notes = append(notes, fmt.Sprintf("A request of %s took %s, and a run %gs: a longer run (--runtime-seconds) says what a short one cannot.",
			longest.Policy, draw.Time(float64(longest.Clat.Max)), r.Runtime))
	}
	if apart != nil {
		why := "this machine is busy, or a run too short; more rounds (--rounds) and --runtime vtime tell more"
		if r.Virtual {
			why = "a run is too short; longer ones (--runtime-seconds) and more rounds (--rounds) tell more"
		}
		notes = append(notes, fmt.Sprintf("The fastest round of %s did %.1f times its slowest: %s.", apart.Policy, apart.apart(), why))
	}
	if r.Pass > 0 && r.Pass < 1 {
		notes = append(notes, fmt.Sprintf("A run of %s moves %.0f %% of its files: less than one pass, in which later requests are smaller.", r.Rows[0].Policy, 100*r.Pass))
	}
	if tight != nil {
		notes = append(notes, fmt.Sprintf("The writers of %s waited for room for %.0f %% of their time: what is dirty reserves metadata, for which a larger image (mkfs --size) has the room.",
			tight.Policy, 100*tight.Waits[roomWait]))
	}
	return notes
}

// roomWait is the class of the wait for space that is not reserved yet.
const roomWait = "space_ticket"

// apart is the fastest round by the slowest.
func (row *Row) apart() float64 {
	if len(row.RoundIOPS) < 2 {
		return 1
	}
	_, slow, fast := stats.Spread(row.RoundIOPS)
	return fast / slow
}

// writeConclusion writes Conclusion and Notes.
func (r *Result) writeConclusion(b *strings.Builder) {
	for i, s := range append([]string{r.Conclusion()}, r.Notes()...) {
		if s != "" {
			if i <= 1 {
				b.WriteByte('\n')
			}
			fmt.Fprintf(b, "%s\n", prose.Wrap(s, prose.Width))
		}
	}
}
