package practice

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"btrlab/internal/judge/oracle"
	"btrlab/internal/policy"
	"btrlab/internal/prose"
	"btrlab/internal/study/levels"
	"btrlab/internal/study/scenario"
	"btrlab/internal/testing/need"
)

var rewrite = flag.Bool("rewrite", false, "write the questions of testdata anew")

// whole is a question as text.
func whole(q *Question) string {
	var b strings.Builder
	fmt.Fprintf(&b, "level %d, seed %d, %s: %s\n", q.Level, q.Seed, q.Kind, q.Title())
	for _, p := range q.Text() {
		for _, l := range prose.Words(p.Text, prose.Width) {
			fmt.Fprintln(&b, l)
		}
		for _, l := range p.Lines {
			fmt.Fprintln(&b, "  "+l)
		}
	}
	return b.String()
}

func question(t *testing.T, seed uint64, level int, kind Kind) *Question {
	t.Helper()
	q, err := New(seed, level, kind)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// TestMake: whoever waits for a question is told of each candidate, in order, and gets the question
// of New.
func TestMake(t *testing.T) {
	most := 0
	for seed := range uint64(5) {
		last := 0
		q, err := Make(seed, 2, Break, func(n int) {
			if n != last+1 {
				t.Fatalf("candidate %d after %d", n, last)
			}
			last = n
		})
		if err != nil {
			t.Fatal(err)
		}
		if have, want := whole(q), whole(question(t, seed, 2, Break)); have != want || last == 0 {
			t.Errorf("seed %d: after %d candidates have\n%s\nwant\n%s", seed, last, have, want)
		}
		most = max(most, last)
	}
	if most < 2 {
		t.Error("every first candidate is a question: this shows nothing")
	}
}

// TestSameQuestion: a seed and a level are the same question on every machine and in every build. A
// change of the generator or of the engine that moves one shows here: a class in the middle of its
// term then has other questions.
func TestSameQuestion(t *testing.T) {
	var b strings.Builder
	for level := 1; level <= MaxLevel; level++ {
		for seed := range uint64(4) {
			b.WriteString(whole(question(t, seed*1_000_003, level, "")) + "\n")
		}
	}
	name := filepath.Join("testdata", "questions.txt")
	if *rewrite {
		if err := os.WriteFile(name, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	have, wants := strings.Split(b.String(), "\n"), strings.Split(string(want), "\n")
	for i := range min(len(have), len(wants)) {
		if have[i] != wants[i] {
			t.Fatalf("line %d: have %q want %q", i+1, have[i], wants[i])
		}
		if len(have[i]) > prose.Width {
			t.Errorf("line %d has %d characters, want at most %d: %s", i+1, len(have[i]), prose.Width, have[i])
		}
	}
	if len(have) != len(wants) {
		t.Errorf("have %d lines want %d", len(have), len(wants))
	}
}

// brute runs a program by every interleaving of its lines, with nothing of the explorer.
type brute struct {
	l      *levels.Level
	see    string
	orders int
	stuck  int
	ends   []string
	broken int
}

type bruteState struct {
	at   []int
	vals map[string]int // of words, and of names as task.name
	held map[string]int // by task + 1
}

func (b *brute) operand(s *bruteState, task, text string) int {
	if n, err := strconv.Atoi(text); err == nil {
		return n
	}
	return s.vals[task+"."+text]
}

func (b *brute) value(s *bruteState, task, text string) int {
	if in, ok := strings.CutPrefix(text, "max("); ok {
		x, y, _ := strings.Cut(strings.TrimSuffix(in, ")"), ", ")
		return max(b.operand(s, task, x), b.operand(s, task, y))
	}
	x, y, two := strings.Cut(text, " + ")
	v := b.operand(s, task, x)
	if two {
		v += b.operand(s, task, y)
	}
	return v
}

// step does the next line of a task on a copy; nil when it waits.
func (b *brute) step(old *bruteState, i int) *bruteState {
	s := &bruteState{slices.Clone(old.at), map[string]int{}, map[string]int{}}
	for k, v := range old.vals {
		s.vals[k] = v
	}
	for k, v := range old.held {
		s.held[k] = v
	}
	task := b.l.Tasks[i]
	line := task.Lines[s.at[i]]
	s.at[i]++
	word := func(name string) bool { _, ok := s.vals[name]; return ok }
	if m, ok := strings.CutPrefix(line, "lock "); ok {
		if s.held[m] != 0 {
			return nil
		}
		s.held[m] = i + 1
	} else if m, ok := strings.CutPrefix(line, "unlock "); ok {
		s.held[m] = 0
	} else if x, v, ok := strings.Cut(line, " += "); ok {
		s.vals[x] += b.value(s, task.Name, v)
	} else if x, v, _ := strings.Cut(line, " = "); word(x) {
		s.vals[x] = b.value(s, task.Name, v)
	} else {
		s.vals[task.Name+"."+x] = s.vals[v]
	}
	return s
}

func (b *brute) run(s *bruteState) {
	done, moved := true, false
	for i, t := range b.l.Tasks {
		if s.at[i] == len(t.Lines) {
			continue
		}
		done = false
		if n := b.step(s, i); n != nil {
			moved = true
			b.run(n)
		}
	}
	switch {
	case done:
		b.orders++
		if v := fmt.Sprint(s.vals[b.see]); !slices.Contains(b.ends, v) {
			b.ends = append(b.ends, v)
		}
		if !slices.Contains(b.l.Values, s.vals[b.l.Keeps]) {
			b.broken++
		}
	case !moved:
		b.orders++
		b.stuck++
	}
}

func bruteOf(t *testing.T, p *program) *brute {
	b := &brute{l: p.l, see: p.see}
	var all []int
	s := &bruteState{make([]int, len(p.l.Tasks)), map[string]int{}, map[string]int{}}
	for _, w := range p.l.Words {
		s.vals[w.Name] = w.Value
	}
	for i := range p.l.Tasks {
		all = append(all, i)
	}
	if want := b.serial(s, all); !slices.Equal(p.l.Values, want) {
		t.Errorf("right are %v, want %v\n%s", p.l.Values, want, p.l.Code())
	}
	b.run(s)
	return b
}

// serial are the values of the judged word after the tasks have run one after another, each whole,
// in every order.
func (b *brute) serial(s *bruteState, left []int) (values []int) {
	if len(left) == 0 {
		return []int{s.vals[b.l.Keeps]}
	}
	for k, i := range left {
		n := s
		for range b.l.Tasks[i].Lines {
			n = b.step(n, i)
		}
		values = append(values, b.serial(n, slices.Concat(left[:k], left[k+1:]))...)
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// wants judges an answer and wants it right or wrong.
func wants(t *testing.T, q *Question, answer string, right bool) *Verdict {
	t.Helper()
	v, err := q.Judge(answer, Options{})
	if err != nil {
		t.Fatalf("%s: %v\n%s", q.Command(answer), err, whole(q))
	}
	if v.Right != right {
		t.Errorf("%s: right is %v, want %v: %+v\n%s", q.Command(answer), v.Right, right, v, whole(q))
	}
	return v
}

// TestJudge: what an interpreter of a few lines finds by trying every order is what the judge calls
// right, and nothing else is.
func TestJudge(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() {
		seeds = 15
	}
	for level := 1; level <= 3; level++ {
		for seed := range seeds {
			q := question(t, seed, level, "")
			p := q.about.(*program)
			if p.orders() > 30_000 {
				continue
			}
			b := bruteOf(t, p)
			switch q.Kind {
			case Break:
				v := wants(t, q, " Never ", b.broken+b.stuck == 0)
				wants(t, q, "", false)
				if b.broken+b.stuck > 0 {
					if v.Trace == nil || v.Schedule == "" {
						t.Errorf("%s: never is wrong, and nothing shows it", q.Command())
					}
					wants(t, q, v.Schedule, true)
				}
			case See:
				if b.stuck > 0 {
					t.Errorf("%s: tasks can wait for each other\n%s", q.Command(), whole(q))
				}
				all := strings.Join(b.ends, " ")
				wants(t, q, all, true)
				wants(t, q, strings.Join(b.ends[1:], ", "), false)
				wants(t, q, all+" 777777", false)
			case Count:
				wants(t, q, fmt.Sprint(b.orders), true)
				wants(t, q, fmt.Sprint(b.orders+1), false)
				wants(t, q, fmt.Sprint(b.orders-1), false)
			case Fewest:
				v := wants(t, q, "never", b.broken+b.stuck == 0)
				if b.broken+b.stuck == 0 {
					wants(t, q, "1", false)
					continue
				}
				n := v.Trace.Preemptions
				wants(t, q, fmt.Sprint(n), true)
				wants(t, q, fmt.Sprint(n+1), false)
				wants(t, q, fmt.Sprint(n-1), false)
			}
		}
	}
}

// orders is the number of interleavings without locks, as a float of a multinomial: what the brute
// force may cost.
func (p *program) orders() int {
	n, x := 0, 1.0
	for _, t := range p.l.Tasks {
		for i := range t.Lines {
			n++
			x = x * float64(n) / float64(i+1)
		}
	}
	return int(min(x, 1e9))
}

// TestJudgeFiles: on the real write path the schedule that the judge shows is right, never and the
// empty schedule are not, and of what can be seen nothing may be left out or added.
func TestJudgeFiles(t *testing.T) {
	for _, level := range []int{4, 5} {
		broken := false
		for seed := uint64(0); seed < 8 && !broken; seed++ {
			q := question(t, seed, level, Break)
			v, err := q.Judge(Never, Options{})
			if err != nil {
				t.Fatal(err)
			}
			wants(t, q, "", false)
			if broken = !v.Right; broken {
				wants(t, q, v.Schedule, true)
			}
		}
		if !broken {
			t.Errorf("level %d: no seed breaks", level)
		}
		q := question(t, 1, level, See)
		o, err := q.outcomes(Options{})
		if err != nil {
			t.Fatal(err)
		}
		all := strings.Join(o.list, " ")
		wants(t, q, all, true)
		wants(t, q, strings.Join(o.list[1:], " "), false)
		wants(t, q, all+" Z", false)
	}
}

// TestBadAnswers: what is no answer is an error that says what is wanted, and no wrong answer.
func TestBadAnswers(t *testing.T) {
	for _, c := range []struct {
		kind         Kind
		level        int
		answer, want string
	}{
		{Break, 1, "often", "never, or a schedule of this scenario: not a schedule"},
		{Break, 1, "99:1", "never, or a schedule of this scenario: the schedule names step 99"},
		{Break, 1, "2:7", "never, or a schedule of this scenario: step 2"},
		{See, 1, "", "what is possible"},
		{See, 1, "1 x", `answer "x", want numbers`},
		{See, 1, "01", `answer "01", want numbers`},
		{See, 4, "AB7", "letters of writes"},
		{Count, 2, "many", "a number of schedules"},
		{Count, 2, "-1", "a number of schedules"},
		{Fewest, 3, "few", "never, or a number of preemptions"},
	} {
		_, err := question(t, 5, c.level, c.kind).Judge(c.answer, Options{})
		var bad *BadAnswer
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %q: have %v want %s", c.kind, c.answer, err, c.want)
		}
	}
	for _, c := range []struct {
		level int
		kind  Kind
		want  string
	}{{0, "", "level 0, want 1 to 5"}, {6, "", "level 6, want 1 to 5"}, {1, Count, `level 1 has no questions of kind "count", want one of break, see`}} {
		if _, err := New(1, c.level, c.kind); err == nil || err.Error() != c.want {
			t.Errorf("have %v want %s", err, c.want)
		}
	}
	stop := Options{Stop: func() bool { return true }}
	for _, kind := range []Kind{Break, See} {
		if _, err := question(t, 1, 4, kind).Judge(map[Kind]string{Break: "never", See: "A"}[kind], stop); !errors.Is(err, ErrStopped) {
			t.Errorf("%s: have %v want %v", kind, err, ErrStopped)
		}
	}
}

// TestVariety measures what the questions of a level are like: how many differ, how many break, how
// many schedules they have. The figures of labs/README.md come from it, with BTRLAB_NUMBERS=1 and
// -v.
func TestVariety(t *testing.T) {
	need.Long(t)
	for level := 1; level <= MaxLevel; level++ {
		n := 200
		switch {
		case testing.Short() && level > 2:
			n = 4
		case level > 3:
			n = 8
		case level > 2:
			n = 60
		}
		if os.Getenv("BTRLAB_NUMBERS") != "" {
			n = 200
		}
		texts, kinds := map[string]bool{}, map[Kind]int{}
		asked, broken := 0, 0
		var schedules []int
		for seed := range uint64(n) {
			q := question(t, seed, level, "")
			kinds[q.Kind]++
			_, text, _ := strings.Cut(whole(q), "\n")
			texts[text] = true
			var err error
			var f facts
			switch q.Kind {
			case Break, Fewest:
				f, err = q.facts(Options{})
				asked++
				if f.broken > 0 {
					broken++
				}
			case See:
				var o outcomes
				o, err = q.outcomes(Options{})
				f = facts{schedules: o.schedules, exhausted: o.exhausted}
				if len(o.list) < 2 {
					t.Errorf("%s: only one thing can be seen", q.Command())
				}
			case Count:
				f.schedules, f.exhausted, err = q.count(Options{})
			}
			if err != nil || !f.exhausted {
				t.Errorf("%s: not exhausted by %d schedules, %v", q.Command(), f.schedules, err)
			}
			schedules = append(schedules, f.schedules)
		}
		slices.Sort(schedules)
		t.Logf("level %d: of %d seeds %d questions differ; %v; %d of %d can be broken; %d to %d schedules, median %d", level, n, len(texts), kinds, broken, asked,
			schedules[0], schedules[n-1], schedules[n/2])
		if len(texts)*100 < 90*n {
			t.Fatalf("level %d: %d of %d questions differ, want 90 of 100", level, len(texts), n)
		}
		if asked >= 20 && (broken*4 < asked || broken*10 > 9*asked) {
			t.Errorf("level %d: %d of %d can be broken, want a quarter to nine tenths: else one answer is always right", level, broken, asked)
		}
	}
}

// TestStudentSeed: the seed depends on the student, the lab and the question, and on nothing that
// people write differently.
func TestStudentSeed(t *testing.T) {
	if have, want := StudentSeed("ada", 4, 1), uint64(16281170190630525970); have != want {
		t.Errorf("have %d want %d", have, want)
	}
	if StudentSeed("ada", 4, 1) != StudentSeed(" Ada\n", 4, 1) {
		t.Error("blanks and case make another seed")
	}
	seen := map[uint64]bool{}
	for _, id := range []string{"ada", "bob", "ad", "a"} {
		for lab := range 12 {
			for n := range 3 {
				seen[StudentSeed(id, lab, n)] = true
			}
		}
	}
	if len(seen) != 4*12*3 {
		t.Errorf("%d of %d seeds differ", len(seen), 4*12*3)
	}
}

// TestOutcomes: what can be seen of a file under a lock for everything is what the two orders
// leave, worked out by hand.
func TestOutcomes(t *testing.T) {
	for _, c := range []struct {
		with   scenario.Op
		reader int
		want   string
	}{
		{scenario.Truncate(pages(2)), 0, "-A -AA"},
		{scenario.Truncate(0), 0, ".AA empty"},
		{scenario.Truncate(pages(6)), 0, "-AA-.."},
		{scenario.Punch(pages(2), pages(2)), 0, "-A.. -AA."},
		{scenario.Write(pages(2), pages(3)), 0, "-AABB -ABBB"},
		{scenario.Read(0, pages(2)), 2, "-- -A"},
	} {
		f := &file{policy: policy.MustParse("locked"), reader: c.reader, s: &scenario.Scenario{Name: "outcomes", Switch: []string{"i_rwsem", "page"},
			File:  scenario.File{Size: pages(4), Cached: []oracle.Range{{Lo: 0, Hi: pages(4)}}},
			Tasks: []scenario.Task{{Name: "a", Ops: []scenario.Op{scenario.Write(pages(1), pages(2))}}, {Name: "b", Ops: []scenario.Op{c.with}}}}}
		o, err := (&Question{Kind: See, about: f}).outcomes(Options{})
		if have := strings.Join(o.list, " "); err != nil || !o.exhausted || have != c.want {
			t.Errorf("%v: have %q want %q, %v", c.with, have, c.want, err)
		}
	}
}
