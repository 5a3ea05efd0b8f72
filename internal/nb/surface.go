package nb

import (
	"fmt"

	"gonum.org/v1/plot/vg"

	"btrlab/internal/measure/reproduce"
	"btrlab/internal/measure/seeds"
)

// MaxPoints bounds the points of Surface.
const MaxPoints = 30

// Surfaced is how the gain of seed 000 hangs on two choices. It has what it shows and not the
// reproduce.Surface: the interpreter would look at that type's locks, and warn in the first cell of
// every notebook.
type Surfaced struct {
	x     string
	gains [][]float64 // percent, by spread and share
	rows  [][]string
	plot  func() (Figure, error)
}

// Surface runs seed 000 in virtual time at each pair of a share, the percent of a request's time
// that grows with its size, and a spread, the sigma of the times. The row before is fitted again at
// each of them. The file has 1 GiB instead of 8 and a run 0.3 s instead of 300, so requests meet
// more often than the seed's; a point takes about a second.
func Surface(shares, spreads []float64) (*Surfaced, error) {
	switch n := len(shares) * len(spreads); {
	case len(shares) < 2 || len(spreads) < 2:
		return nil, fmt.Errorf("%d shares and %d spreads, want at least 2 of each", len(shares), len(spreads))
	case n > MaxPoints:
		return nil, fmt.Errorf("%d points, want at most %d", n, MaxPoints)
	}
	for _, v := range shares {
		if v < 0 || v > 90 {
			return nil, fmt.Errorf("share %g, want 0 to 90 percent", v)
		}
	}
	for _, v := range spreads {
		if v < 0 || v > 2 {
			return nil, fmt.Errorf("spread %g, want 0 to 2", v)
		}
	}
	seed := *seeds.Get(seeds.NowaitDirect)
	of := *seed.Study.Surface
	of.X.Values, of.Y.Values, of.Panels = shares, spreads, of.Panels[:1]
	seed.Study.Surface = &of
	s, err := reproduce.Map(&seed, reproduce.Options{Calibration: seed.Study.Calibration, Seconds: 0.3, Size: 1 << 30})
	if err != nil {
		return nil, err
	}
	panel := s.Panels[0]
	out := &Surfaced{x: s.X, rows: s.Table(panel), plot: func() (Figure, error) {
		return render(s.Plot(), 4*vg.Inch, "contours of the gain over "+s.X+" and "+s.Y)
	}}
	for _, line := range panel.Points {
		var gains []float64
		for _, point := range line {
			gains = append(gains, point.Gain())
		}
		out.gains = append(out.gains, gains)
	}
	return out, nil
}

// Gain is that of a point by its place in the lists, in percent.
func (s *Surfaced) Gain(share, spread int) float64 { return s.gains[spread][share] }

// Table is the gains in percent: a line for each spread, a column for each share.
func (s *Surfaced) Table() Table {
	head := append([]string{"spread"}, s.rows[0][1:]...)
	return Table{Caption: "Gain of the eight patches, percent, by " + s.x, Head: head, Rows: s.rows[1:]}
}

// Plot draws lines of equal gain, the published one thick.
func (s *Surfaced) Plot() (Figure, error) { return s.plot() }
