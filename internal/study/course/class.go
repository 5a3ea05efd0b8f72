package course

import (
	"context"
	"crypto/sha256"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"btrlab/internal/prose"
	"btrlab/internal/study/judges"
	"btrlab/internal/study/sandbox"
)

// Submission is one folder of a class, graded.
type Submission struct {
	Name       string // of the folder, as it can be printed
	Score, Max float64
	Pass       bool
	// Digest is of the files that were graded: a submission that has not changed is not graded
	// again.
	Digest string
	// Result is ok, or the first thing that is wrong, in one line.
	Result string
	// Like is the submission that is most like this one, and Likeness how much, from 0 to 1: the
	// share of what the two have in common in what they have at all, without what the starter has.
	// It is what their code does that is compared (sandbox.Alike), or the text, whichever is more
	// alike.
	Like     string
	Likeness float64
	// Cluster is the number, from 1, of the group of submissions that are alike, each to at least
	// one other of the group; 0 is none. See Clusters.
	Cluster int

	print print // what is compared
}

var csvHead = []string{"name", "score", "max", "pass", "digest", "result", "like", "likeness", "cluster"}

// alike is the likeness from which on two submissions are of one cluster.
const alike = 0.8

// Cluster is submissions that are alike.
type Cluster struct {
	Names []string
	// Least is the likeness of the two that are least alike. Same says that nothing tells any two
	// apart.
	Least float64
	Same  bool
}

// Clusters are the groups of a class that GradeAll has graded, in the order of their numbers.
func Clusters(all []Submission) []Cluster {
	var l []Cluster
	for n := 1; ; n++ {
		x := Cluster{Least: 1, Same: true}
		var of []Submission
		for _, s := range all {
			if s.Cluster != n {
				continue
			}
			for _, o := range of {
				x.Least = min(x.Least, likeness(o.print, s.print))
			}
			of, x.Names = append(of, s), append(x.Names, s.Name)
		}
		if len(of) == 0 {
			return l
		}
		x.Same = x.Least == 1
		l = append(l, x)
	}
}

// join puts all[i] and all[j], which are alike, into one cluster. Numbers stay without a gap.
func join(all []Submission, i, j int) {
	a, b := &all[i].Cluster, &all[j].Cluster
	switch last := lastCluster(all); {
	case *a == 0 && *b == 0:
		*a, *b = last+1, last+1
	case *a == 0:
		*a = *b
	case *b == 0:
		*b = *a
	case *a != *b:
		from, to := max(*a, *b), min(*a, *b)
		for k := range all {
			switch c := &all[k].Cluster; {
			case *c == from:
				*c = to
			case *c > from:
				*c--
			}
		}
	}
}

func lastCluster(all []Submission) (last int) {
	for _, x := range all {
		last = max(last, x.Cluster)
	}
	return last
}

// WriteCSV writes a line for each submission.
func WriteCSV(w io.Writer, l []Submission) error {
	c := csv.NewWriter(w)
	rows := [][]string{csvHead}
	for _, x := range l {
		rows = append(rows, []string{textCell(x.Name), fmt.Sprint(x.Score), fmt.Sprint(x.Max), strconv.FormatBool(x.Pass), textCell(x.Digest), textCell(x.Result), textCell(x.Like),
			strconv.FormatFloat(x.Likeness, 'f', 2, 64), strings.TrimPrefix(strconv.Itoa(x.Cluster), "0")})
	}
	return c.WriteAll(rows)
}

// textCell is a cell with text that a spreadsheet takes for text and for no formula: a quote before
// it says so. ownText takes it away again.
func textCell(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r\n'", rune(s[0])) {
		return "'" + s
	}
	return s
}

func ownText(cell string) string { return strings.TrimPrefix(cell, "'") }

// ReadCSV reads what WriteCSV wrote.
func ReadCSV(r io.Reader) ([]Submission, error) {
	rows, err := csv.NewReader(r).ReadAll()
	if err != nil {
		return nil, err
	}
	var l []Submission
	for i, row := range rows {
		if i == 0 {
			// the last column came later
			if head := strings.Join(row, ","); head != strings.Join(csvHead, ",") && head != strings.Join(csvHead[:len(csvHead)-1], ",") {
				return nil, fmt.Errorf("bad head of the table, have %s want %s", strings.Join(row, ","), strings.Join(csvHead, ","))
			}
			continue
		}
		x := Submission{Name: ownText(row[0]), Digest: ownText(row[4]), Result: ownText(row[5]), Like: ownText(row[6])}
		var errs [4]error
		x.Score, errs[0] = strconv.ParseFloat(row[1], 64)
		x.Max, errs[1] = strconv.ParseFloat(row[2], 64)
		x.Pass, errs[2] = strconv.ParseBool(row[3])
		x.Likeness, errs[3] = strconv.ParseFloat(row[7], 64)
		if err := errors.Join(errs[:]...); err != nil {
			return nil, fmt.Errorf("bad line %d of the table: %w", i+1, err)
		}
		l = append(l, x)
	}
	return l, nil
}

// GradeAll grades every folder below dir, by name, and calls each after every one with all so far.
// What known has of a submission with the same files is taken over. A submission that cannot be
// graded has no points, and its Result says why; the others go on. When ctx ends, so does the
// grading, with its error. o has the limits of each. With byName set the name of a folder is the id
// of its student, and personal questions are graded.
func GradeAll(ctx context.Context, root string, l *Lab, dir string, byName bool, o Options, known []Submission, each func([]Submission) error) ([]Submission, error) {
	o.Explored = &sandbox.Explored{}
	c, err := NewClass(ctx, root, l, dir, byName, o)
	if err != nil {
		return nil, err
	}
	old := map[string]Submission{}
	for _, x := range known {
		old[x.Name] = x
	}
	var all []Submission
	for n := range c.folders {
		x, ok := old[prose.Escape(c.folders[n])]
		if !ok || x.Digest != c.digest(n) {
			if x, err = c.grade(ctx, n); err != nil {
				return all, err
			}
		}
		if x.print, err = c.print(ctx, n); err != nil {
			return all, err
		}
		all = compared(all, x)
		if err := each(all); err != nil {
			return all, err
		}
	}
	return all, nil
}

// Class is the submissions in the folders of one folder, by name.
type Class struct {
	lab       *Lab
	root, dir string
	byName    bool
	options   Options
	folders   []string
	base      print // of the starter
}

// NewClass is the class below dir, see GradeAll.
func NewClass(ctx context.Context, root string, l *Lab, dir string, byName bool, o Options) (*Class, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	c := &Class{lab: l, root: root, dir: dir, byName: byName, options: o}
	for _, e := range entries {
		if e.IsDir() {
			c.folders = append(c.folders, e.Name())
		}
	}
	if len(c.folders) == 0 {
		return nil, &sandbox.NoFilesError{Dir: dir, Want: "folder with a submission"}
	}
	c.base, err = l.print(ctx, root, l.Dir(root))
	return c, err
}

// Len is the number of submissions.
func (c *Class) Len() int { return len(c.folders) }

// Digest is of the files of all submissions.
func (c *Class) Digest() string {
	h := sha256.New()
	for n, name := range c.folders {
		fmt.Fprintf(h, "%q %s\n", name, c.digest(n))
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}

func (c *Class) student(n int) string {
	if c.byName {
		return c.folders[n]
	}
	return ""
}

func (c *Class) folder(n int) string { return filepath.Join(c.dir, c.folders[n]) }

func (c *Class) digest(n int) string { return c.lab.digest(c.folder(n), c.student(n)) }

// print is what submission n is compared by: what the starter does not have.
func (c *Class) print(ctx context.Context, n int) (print, error) {
	own, err := c.lab.print(ctx, c.root, c.folder(n))
	own.without(c.base)
	return own, err
}

func (c *Class) grade(ctx context.Context, n int) (Submission, error) {
	x, err := c.lab.gradeOne(ctx, c.root, c.folder(n), c.student(n), c.options)
	x.Name, x.Digest = prose.Escape(c.folders[n]), c.digest(n)
	return x, err
}

// Graded is a submission that was graded by itself, with what it is compared by.
type Graded struct {
	Name   string   `json:"name"`
	Score  float64  `json:"score"`
	Max    float64  `json:"max"`
	Pass   bool     `json:"pass"`
	Digest string   `json:"digest"`
	Result string   `json:"result"`
	Forms  []string `json:"forms"`
	Tokens []string `json:"tokens"`
}

// Grade grades submission n. The error is that of ctx, or about the tools.
func (c *Class) Grade(ctx context.Context, n int) (*Graded, error) {
	x, err := c.grade(ctx, n)
	if err != nil {
		return nil, err
	}
	own, err := c.print(ctx, n)
	return &Graded{x.Name, x.Score, x.Max, x.Pass, x.Digest, x.Result, slices.Sorted(maps.Keys(own.forms)), slices.Sorted(maps.Keys(own.tokens))}, err
}

// Joined are the submissions of a class that were graded one by one, compared with each other.
func Joined(l []Graded) (all []Submission) {
	for i := range l {
		x := &l[i]
		s := Submission{Name: x.Name, Score: x.Score, Max: x.Max, Pass: x.Pass, Digest: x.Digest, Result: x.Result, print: print{map[string]bool{}, map[string]bool{}}}
		for _, f := range x.Forms {
			s.print.forms[f] = true
		}
		for _, t := range x.Tokens {
			s.print.tokens[t] = true
		}
		all = compared(all, s)
	}
	return all
}

// compared adds x to all, with what is alike.
func compared(all []Submission, x Submission) []Submission {
	x.Like, x.Likeness, x.Cluster = "", 0, 0
	all = append(all, x)
	last := len(all) - 1
	for i := range last {
		n := likeness(all[i].print, x.print)
		if n >= alike {
			join(all, i, last)
		}
		for _, pair := range [][2]int{{i, last}, {last, i}} {
			if a := &all[pair[0]]; n > a.Likeness {
				a.Like, a.Likeness = all[pair[1]].Name, n
			}
		}
	}
	return all
}

// gradeOne grades one submission; the error is that of ctx only.
func (l *Lab) gradeOne(ctx context.Context, root, dir, student string, o Options) (x Submission, err error) {
	x.Max = judges.Points(l.judge)
	defer func() {
		if p := recover(); p != nil { // a file that upsets the grader is that student's matter
			x.Score, x.Pass, x.Result, err = 0, false, oneLine(fmt.Sprintf("not graded: %v", p)), nil
		}
	}()
	o.Dir, o.Student, o.Name = dir, student, filepath.Base(dir)
	r, err := Grade(ctx, root, l, o)
	switch {
	case ctx.Err() != nil:
		return x, ctx.Err()
	case err != nil:
		x.Result = oneLine("not graded: " + err.Error())
		return x, nil
	}
	x.Score, x.Max, x.Pass, x.Result = r.Score, r.Max, r.Pass, "ok"
	for _, row := range r.Rows {
		if !row.Pass {
			x.Result = oneLine(row.Name + ": " + row.Result)
			break
		}
	}
	if name, rows := r.shared(); name != "" {
		x.Result += fmt.Sprintf(" (same code as %s, explored once: %s shared)", name, prose.Count(len(rows), "row"))
	}
	return x, nil
}

func oneLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return prose.Escape(strings.TrimSpace(s))
}

// files are those of a submission that are graded; none when they cannot be listed.
func (l *Lab) files(dir string) []string {
	if l.Code == nil {
		return []string{filepath.Join(dir, l.File)}
	}
	f, err := sandbox.Sources(dir)
	if err != nil {
		return nil
	}
	return f
}

func (l *Lab) digest(dir, student string) string {
	h := sha256.New()
	files := l.files(dir)
	if l.Essay != nil {
		files = append(files, filepath.Join(dir, l.Essay.File))
	}
	if student != "" {
		fmt.Fprintf(h, "student %s\n", student)
		files = append(files, filepath.Join(dir, personalFile))
	}
	for _, f := range files {
		switch b, err := sandbox.Read(f); {
		case err == nil:
			fmt.Fprintf(h, "%s %d\n%s", filepath.Base(f), len(b), b)
		case !errors.Is(err, fs.ErrNotExist):
			fmt.Fprintf(h, "%s\n", err)
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}

// print is what a submission is compared by: the forms of its code (sandbox.Alike) and the runs of
// its tokens, or the lines of its answers.
type print struct{ forms, tokens map[string]bool }

// print is that of the files of a folder. What cannot be read has nothing. The error is that of ctx
// or about the tools.
func (l *Lab) print(ctx context.Context, root, dir string) (p print, err error) {
	p = print{map[string]bool{}, map[string]bool{}}
	files, err := sandbox.ReadAll(l.files(dir))
	if err != nil {
		return p, nil
	}
	if l.Code == nil {
		for _, f := range files {
			for line := range strings.Lines(string(f.Data)) {
				line, _, _ = strings.Cut(line, "#")
				if line = strings.Join(strings.Fields(line), " "); line != "" {
					p.tokens[line] = true
				}
			}
		}
		return p, nil
	}
	a, err := sandbox.LikenessOf(ctx, root, files, l.Code.Rules)
	if l.Narrow {
		a.Forms = nil
	}
	for _, x := range a.Forms {
		p.forms[x] = true
	}
	for _, x := range a.Tokens {
		p.tokens[x] = true
	}
	return p, err
}

// without takes from p what the starter has.
func (p print) without(starter print) {
	for s := range starter.forms {
		delete(p.forms, s)
	}
	for s := range starter.tokens {
		delete(p.tokens, s)
	}
}

// likeness is the larger one of what the forms and the tokens say. Code that is compared by one of
// them is alike also where the other one sees two texts.
func likeness(a, b print) float64 { return max(within(a.forms, b.forms), common(a.tokens, b.tokens)) }

// common is the share of what a and b have in common in all that they have.
func common(a, b map[string]bool) float64 {
	n := shared(a, b)
	if n == 0 {
		return 0
	}
	return float64(n) / float64(len(a)+len(b)-n)
}

// within is the share of what a and b have in common in what the smaller one has: whoever adds
// something to what was taken has taken it all the same. Of few forms that says nothing.
func within(a, b map[string]bool) float64 {
	least := min(len(a), len(b))
	if least < fewForms {
		return common(a, b)
	}
	return float64(shared(a, b)) / float64(least)
}

const fewForms = 8

func shared(a, b map[string]bool) (n int) {
	for s := range a {
		if b[s] {
			n++
		}
	}
	return n
}
