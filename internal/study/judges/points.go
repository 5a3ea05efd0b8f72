package judges

import (
	"fmt"
	"slices"
	"strings"

	"btrlab/internal/prose"
	"btrlab/internal/study/grade"
)

// finish makes the rows of the report of those of the lab's workloads.
func finish(l Lab, rows []grade.Row) []grade.Row {
	rows = fold(l.Workloads(), rows)
	count(l, rows)
	return rows
}

// fold puts the rows of the workloads of a family together, in the place of its first.
func fold(of []Workload, rows []grade.Row) []grade.Row {
	family := map[string]*family{}
	for _, w := range of {
		family[w.name] = w.family
	}
	var out []grade.Row
	at, proved := map[string]int{}, map[int]int{}
	for _, r := range rows {
		f := family[r.Name]
		if f == nil {
			out = append(out, r)
			continue
		}
		i, ok := at[f.name]
		if !ok {
			i = len(out)
			at[f.name], out = i, append(out, grade.Row{Name: f.name, Asks: f.asks, Max: f.points, Pass: true})
		}
		g := &out[i]
		result := r.Result
		if !r.Pass && g.Pass {
			g.Pass, g.Violated, g.Kind, g.Schedule, g.Trace, g.Workload = false, r.Violated, r.Kind, r.Schedule, r.Trace, r.Name
			g.Result = r.Name + ": " + r.Result
		}
		if i := strings.IndexByte(result, '\n'); i >= 0 {
			result = result[:i]
		}
		g.Parts = append(g.Parts, grade.Part{Name: r.Name, Pass: r.Pass, Result: result})
		g.Schedules += r.Schedules
		if r.Exhausted {
			proved[i]++
		}
	}
	for i := range out {
		if g := &out[i]; len(g.Parts) > 0 && g.Pass {
			g.Score = g.Max
			g.Result = fmt.Sprintf("%s kept in %s; %d exhausted", prose.Count(len(g.Parts), "scenario"), prose.Count(g.Schedules, "schedule"), proved[i])
		}
	}
	return out
}

// count takes from a lab's rows the points that are not earned. A row that the untouched starter
// passes is nobody's work yet: it counts as soon as one row passes that the starter fails. So a
// starter has no points, and whoever mends one thing keeps the points for what was right. Where
// code that does nothing breaks nothing, the rows count once that of the lab's basis passes, which
// asks for something to be done.
func count(l Lab, rows []grade.Row) {
	about := l.About()
	onBasis(about.Basis, rows)
	earned := false
	for i := range rows {
		r := &rows[i]
		r.Given = slices.Contains(about.Given, r.Name)
		earned = earned || r.Pass && !r.Given
	}
	for i := range rows {
		if r := &rows[i]; r.Given && !earned {
			r.Score = 0
		}
	}
	halve(about, rows)
}

// halve halves the points of all rows where one shows that what is handed in is not what the lab is
// about: a lock that does not exclude is no lock, in whatever examples it does, and has half of the
// points at most.
func halve(about *About, rows []grade.Row) {
	i := slices.IndexFunc(rows, func(r grade.Row) bool { return !r.Pass && slices.Contains(about.Broken, r.Kind) })
	if i < 0 {
		return
	}
	for k := range rows {
		rows[k].Score /= 2
		rows[k].Halved = fmt.Sprintf("%s shows that %s", rows[i].Name, about.Promise)
	}
}

// onBasis takes the points of all rows unless that of the basis passes, if there is one.
func onBasis(basis string, rows []grade.Row) {
	i := slices.IndexFunc(rows, func(r grade.Row) bool { return r.Name == basis })
	if i < 0 || rows[i].Pass {
		return
	}
	for k := range rows {
		if r := &rows[k]; r.Score > 0 {
			r.Score = 0
			r.Result += "; it counts once " + basis + " is ok"
		}
	}
}

// guesses takes the points of right answers that may be guesses: each wrong never takes those of a
// right one, since who says never to everything knows nothing. said are the answers by the names of
// rows.
func guesses(rows []grade.Row, said map[string]string) {
	right, wrong := 0, 0
	for _, r := range rows {
		switch {
		case !strings.EqualFold(strings.TrimSpace(said[r.Name]), Never):
		case r.Pass:
			right++
		default:
			wrong++
		}
	}
	if right == 0 || wrong == 0 {
		return
	}
	for i := range rows {
		if r := &rows[i]; r.Pass && strings.EqualFold(strings.TrimSpace(said[r.Name]), Never) {
			r.Score = r.Max * float64(max(right-wrong, 0)) / float64(right)
			r.Result = fmt.Sprintf("right, and %g of %g points: %d of your answers \"never\" %s wrong, and each takes the points of a right one; %s", r.Score, r.Max,
				wrong, map[bool]string{true: "is", false: "are"}[wrong == 1], r.Result)
		}
	}
}
