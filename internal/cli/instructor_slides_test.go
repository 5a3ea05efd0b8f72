package cli

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"btrlab/internal/cli/app"
	"btrlab/internal/study/handout"
	"btrlab/internal/testing/need"
)

var slidesSlow = flag.Bool("slides.slow", false, "also run the commands on slides that take minutes")

const slidesDir = "../../labs/guide/instructor/slides"

// slow are the commands on slides that take more than some seconds of processor time.
var slow = []string{
	"compare --runtime vtime --device-model ssd-raid5",
	"explore truncate-race --policy unlocked-drain --method naive",
	"museum all",
	"reproduce 001 --size 100000M --runtime-seconds 2 --all",
	"reproduce 002 --runtime-seconds 8 --warm 8",
	"reproduce 002 --runtime-seconds 8 --warm 8 --all",
	"reproduce 003 --size 64M --runtime-seconds 2.1 --all",
	"reproduce 004 --size 256M --runtime-seconds 0.1 --all",
}

// slide is a part of a lecture, between two lines "---".
type slide struct {
	at    string // file and number
	class string // of its directive _class
	text  string // what is shown
	note  string // what the teacher says
}

var (
	slideComment = regexp.MustCompile(`(?s)<!--(.*?)-->`)
	slideClass   = regexp.MustCompile(`^\s*_class: (\w+)\s*$`)
	slideMinutes = regexp.MustCompile(`^(\d) min\. `)
	slidePicture = regexp.MustCompile(`!\[[^\]]*\]\(([^)]+)\)`)
	slideBlock   = regexp.MustCompile("(?s)```(\\w*)\n(.*?)```")
	slideLink    = regexp.MustCompile("`(internal/[^`:]*):/")
	slideDrawn   = regexp.MustCompile("`btrlab (replay [^`]* --out (pictures/[^`]*\\.svg))`")
	slideMade    = regexp.MustCompile("(?s)Measured by\n`btrlab ([^`]*)`")
	slideMark    = regexp.MustCompile(`^(#|-|>|\d\.) `) // of a heading, an item, a quotation
	seconds      = regexp.MustCompile(`\d+\.\d+ s\b`)
)

// slidesOf divides a lecture.
func slidesOf(name, text string) (list []slide) {
	parts := strings.Split(text, "\n---\n") // the front matter is the first
	for i, part := range parts[1:] {
		s := slide{at: fmt.Sprintf("%s, slide %d", name, i+1), text: slideComment.ReplaceAllString(part, "")}
		for _, m := range slideComment.FindAllStringSubmatch(part, -1) {
			if c := slideClass.FindStringSubmatch(m[1]); c != nil {
				s.class += c[1]
			} else {
				s.note += strings.TrimSpace(m[1])
			}
		}
		list = append(list, s)
	}
	return list
}

// words are those that a class reads as prose: neither code blocks nor tables nor pictures.
func (s *slide) words() (n int) {
	for line := range strings.Lines(slidePicture.ReplaceAllString(slideBlock.ReplaceAllString(s.text, ""), "")) {
		if !strings.HasPrefix(line, "|") {
			n += len(strings.Fields(slideMark.ReplaceAllString(line, "")))
		}
	}
	return n
}

// table has the rows of a slide's table, without its head.
func (s *slide) table() (rows [][]string) {
	body := false
	for line := range strings.Lines(s.text) {
		switch line = strings.TrimSpace(line); {
		case strings.HasPrefix(line, "|---"):
			body = true
		case !strings.HasPrefix(line, "|"):
			body = false
		case body:
			cells := strings.Split(strings.Trim(line, "|"), "|")
			for i := range cells {
				cells[i] = strings.ReplaceAll(strings.TrimSpace(cells[i]), "**", "")
			}
			rows = append(rows, cells)
		}
	}
	return rows
}

// screen runs the commands that slides print, each once.
type screen struct {
	dir  string
	seen map[string]string
}

func newScreen(t *testing.T) *screen {
	t.Helper()
	s := &screen{dir: t.TempDir(), seen: map[string]string{}}
	if err := os.WriteFile(filepath.Join(s.dir, "answers.txt"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return s
}

// run returns what a command prints, with a time in seconds as T; "" is one that is not run here.
func (s *screen) run(t *testing.T, command string) string {
	t.Helper()
	command = strings.Join(strings.Fields(strings.ReplaceAll(command, "\\\n", " ")), " ")
	if out, ok := s.seen[command]; ok {
		return out
	}
	// The policy is in a folder that the lecture makes.
	if strings.Contains(command, "share") || slices.Contains(slow, command) && !*slidesSlow {
		return ""
	}
	args := strings.Fields(command)
	image := filepath.Join(s.dir, "disk.img")
	for i, a := range args {
		args[i] = strings.Trim(a, "'")
		if a == "disk.img" {
			args[i] = image
			var none bytes.Buffer
			if code := Main([]string{"mkfs", "--quiet", "--force", "--size", "256M", image}, strings.NewReader(""), &none, &none); code != app.ExitOK {
				t.Fatalf("mkfs: %s", &none)
			}
		}
	}
	switch {
	case strings.HasPrefix(command, "lab run"):
		args = append(args, "--dir", s.dir)
	case args[0] == "crash":
		args = slices.Insert(args, 1, "--save", "")
	}
	var out, errw bytes.Buffer
	if code := Main(args, strings.NewReader(""), &out, &errw); code != app.ExitOK && code != app.ExitFailed {
		t.Errorf("%s: exit %d: %s", command, code, &errw)
	}
	text := seconds.ReplaceAllString(strings.ReplaceAll(out.String(), s.dir+"/", ""), "T s")
	s.seen[command] = text
	return text
}

// shows says why the lines of a block are not those that its command printed: in their order, and
// one after the other but for "...", which stands for any.
func shows(block, printed string) error {
	out := strings.Split(printed, "\n")
	at, gap := 0, false
	for line := range strings.Lines(seconds.ReplaceAllString(block, "T s")) {
		line = strings.TrimRight(line, " \n")
		if line == "..." {
			gap = true
			continue
		}
		i := slices.IndexFunc(out[at:], func(o string) bool { return strings.TrimRight(o, " ") == line })
		if i < 0 || i > 0 && !gap {
			return fmt.Errorf("line %q is not printed there", line)
		}
		at, gap = at+i+1, false
	}
	return nil
}

// row says why the cells of a row are not words of one line that the command printed.
func row(cells []string, printed string) error {
	for line := range strings.Lines(printed) {
		rest, ok := " "+strings.Join(strings.Fields(line), " ")+" ", true
		for _, c := range cells {
			_, after, found := strings.Cut(rest, " "+c+" ")
			rest, ok = " "+after, ok && found
		}
		if ok {
			return nil
		}
	}
	return fmt.Errorf("no line has %q", cells)
}

// figures checks what a slide shows of commands, and counts the blocks and tables.
func (s *slide) figures(t *testing.T, sc *screen) (n int) {
	t.Helper()
	for _, b := range slideBlock.FindAllStringSubmatch(s.text, -1) {
		first, block, _ := strings.Cut(strings.ReplaceAll(b[2], "\\\n", " "), "\n")
		if command, ok := strings.CutPrefix(first, "$ btrlab "); ok && block != "" {
			n++
			if out := sc.run(t, command); out != "" {
				if err := shows(block, out); err != nil {
					t.Errorf("%s: %s: %v\n%s", s.at, command, err, out)
				}
			}
		}
	}
	rows := s.table()
	made := slideMade.FindStringSubmatch(s.note)
	if made != nil {
		if n++; len(rows) == 0 {
			t.Errorf("%s: a table was measured that is not there", s.at)
		}
		for _, r := range rows {
			if out := sc.run(t, made[1]); out != "" {
				if err := row(r, out); err != nil {
					t.Errorf("%s: %s: %v\n%s", s.at, made[1], err, out)
				}
			}
		}
		return n
	}
	commands := 0
	for _, r := range rows {
		if command := strings.Trim(r[0], "`"); regexp.MustCompile("^`(explore|compare|replay) ").MatchString(r[0]) {
			commands++
			if err := (printed{text: "btrlab " + command, args: strings.Fields(command)}).exists(nil); err != nil {
				t.Errorf("%s: %s: %v", s.at, command, err)
			}
			out := strings.Join(strings.Fields(sc.run(t, command)), " ")
			for _, want := range r[1:] {
				if out != "" && !strings.Contains(out, want) {
					t.Errorf("%s: %s does not say %q:\n%s", s.at, command, want, out)
				}
			}
		}
	}
	if commands > 0 {
		n++
	}
	return n
}

// form checks what the last row of seats can read, and what the teacher says.
func (s *slide) form(t *testing.T) (minutes int) {
	t.Helper()
	if n := s.words(); n > 60 {
		t.Errorf("%s has %d words, want at most 60", s.at, n)
	}
	if n := len(s.table()); n > 8 {
		t.Errorf("%s has a table of %d rows, want at most 8", s.at, n)
	}
	if strings.Count(s.text, "\n# ") != 1 {
		t.Errorf("%s wants one heading", s.at)
	}
	for _, b := range slideBlock.FindAllStringSubmatch(s.text, -1) {
		lines := strings.Split(strings.TrimSuffix(b[2], "\n"), "\n")
		if len(lines) > 12 {
			t.Errorf("%s has a block of %d lines, want at most 12", s.at, len(lines))
		}
		for _, l := range lines {
			if n := utf8.RuneCountInString(strings.ReplaceAll(l, "\t", "    ")); n > 80 {
				t.Errorf("%s has a line of code of %d columns, want at most 80: %s", s.at, n, l)
			}
		}
		if link := slideLink.FindStringSubmatch(s.text); b[1] == "go" && link != nil && !strings.Contains(readDoc(t, filepath.Join("../..", link[1])), b[2]) {
			t.Errorf("%s: this is not in %s:\n%s", s.at, link[1], b[2])
		}
	}
	if s.class == "title" {
		return 0
	}
	m := slideMinutes.FindStringSubmatch(s.note)
	if m == nil || len(strings.Fields(s.note)) < 15 {
		t.Errorf("%s: a note wants its minutes first and 15 words, have %q", s.at, s.note)
		return 0
	}
	minutes, _ = strconv.Atoi(m[1])
	return minutes
}

// pictures checks that each picture of a slide is what its command draws now, and counts the
// timelines.
func (s *slide) pictures(t *testing.T, used map[string]bool) (n int) {
	t.Helper()
	drawn := map[string]string{}
	for _, m := range slideDrawn.FindAllStringSubmatch(s.note, -1) {
		drawn[m[2]] = m[1]
	}
	for _, m := range slidePicture.FindAllStringSubmatch(s.text, -1) {
		have := readDoc(t, filepath.Join(slidesDir, m[1]))
		if filepath.Ext(m[1]) != ".svg" {
			continue
		}
		used[m[1]] = true
		if drawnPictures[filepath.Base(m[1])] != nil {
			if !strings.Contains(s.note, picturesCommand) {
				t.Errorf("%s: the note does not say %s", s.at, picturesCommand)
			}
			continue // TestSlidePictures draws it
		}
		n++
		command, ok := drawn[m[1]]
		if !ok {
			t.Errorf("%s: the note has no command that draws %s", s.at, m[1])
			continue
		}
		fresh := filepath.Join(t.TempDir(), "fresh.svg")
		args := strings.Fields(strings.Replace(command, m[1], fresh, 1))
		for i := range args {
			args[i] = strings.Trim(args[i], "'")
		}
		var out, errw bytes.Buffer
		if code := Main(args, strings.NewReader(""), &out, &errw); code != app.ExitOK && code != app.ExitFailed {
			t.Errorf("%s: %s: exit %d: %s", s.at, command, code, &errw)
		} else if readDoc(t, fresh) != have {
			t.Errorf("%s: %s is not what btrlab draws now, run btrlab %s in %s", s.at, m[1], command, slidesDir)
		}
	}
	return n
}

// The least that the last row of seats can read, of the 720 pixels of a page: 24 and 32 of 1080.
const leastCode, leastText = 16.0, 21.3

// TestSlidesType: the letters of pictures are as large as those of code, and no size of the theme
// is too small. That none is on a page, and that no page overflows, is TestSlidesInChromium of the
// site's pages.
func TestSlidesType(t *testing.T) {
	pixels := regexp.MustCompile(`(?:font|font-size): ([\d.]+)px`)
	least := func(css string) (px float64) {
		px = 999
		for _, m := range pixels.FindAllStringSubmatch(css, -1) {
			n, err := strconv.ParseFloat(m[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			px = min(px, n)
		}
		return px
	}
	if px := least(readDoc(t, filepath.Join(slidesDir, "btrlab.css"))); px < leastText {
		t.Errorf("the theme has letters of %.1f pixels, want %.1f", px, leastText)
	}
	placed := regexp.MustCompile(`!\[w:(\d+) [^\]]*\]\((pictures/[^)]*)\)`)
	broken := regexp.MustCompile("(?m)^`[^`\n|]{49,} --[^`\n|]*`")
	viewed := regexp.MustCompile(`viewBox="0 0 (\d+) \d+"`)
	names, err := filepath.Glob(filepath.Join(slidesDir, "week-*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		for _, s := range slidesOf(filepath.Base(name), readDoc(t, name)) {
			for _, code := range broken.FindAllString(s.text, -1) {
				t.Errorf("%s: %s is longer than a line, which breaks at a hyphen: want a block of its own", s.at, code)
			}
			on := placed.FindAllStringSubmatch(s.text, -1)
			if len(on) != strings.Count(s.text, "![") {
				t.Errorf("%s: a picture wants its width, as ![w:1200 words](pictures/NAME.svg)", s.at)
			}
			for _, m := range on {
				svg := readDoc(t, filepath.Join(slidesDir, m[2]))
				wide, err := strconv.ParseFloat(m[1], 64)
				view, err2 := strconv.ParseFloat(viewed.FindStringSubmatch(svg)[1], 64)
				if err != nil || err2 != nil {
					t.Fatal(err, err2)
				}
				if cut := regexp.MustCompile(`>([^<]*…)</text>`).FindStringSubmatch(svg); cut != nil {
					t.Errorf("%s: %s has a label that is cut: %q", s.at, m[2], cut[1])
				}
				if px := least(svg) * wide / view; px < leastCode {
					t.Errorf("%s: the letters of %s have %.1f pixels, want %.0f: draw fewer steps (replay --rows)", s.at, m[2], px, leastCode)
				}
			}
		}
	}
}

// last checks that the end of a lecture names what the plan has for the week: its labs, and a
// question of its quiz.
func (s *slide) last(t *testing.T, week int) {
	t.Helper()
	plan := regexp.MustCompile(fmt.Sprintf(`(?m)^\| %d \|.*\|(.*)\|[^|]*\|$`, week)).FindStringSubmatch(readDoc(t, "../../labs/guide/instructor/course.md"))
	if plan == nil {
		t.Fatalf("the plan has no week %d", week)
	}
	for _, lab := range regexp.MustCompile(`\b\d\d\b`).FindAllString(plan[1], -1) {
		if !regexp.MustCompile(`\b` + lab + `\b`).MatchString(s.text) {
			t.Errorf("%s does not name lab %s", s.at, lab)
		}
	}
	quiz := regexp.MustCompile(`btrlab practice --level (\d) --seed (\d+) --kind (\w+)`).FindStringSubmatch(s.text)
	if quiz == nil || !strings.Contains(readDoc(t, "../../labs/guide/instructor/quizzes.md"), fmt.Sprintf("| %d | %s | %s | %s |", week, quiz[1], quiz[3], quiz[2])) {
		t.Errorf("%s has no question of the quiz of week %d", s.at, week)
	}
}

// TestSlides: the lectures can be given as they stand. Each has 20 to 30 slides that can be read,
// with a note for the teacher, and takes about an hour; each figure and picture is what its command
// prints and draws now; no line is one of a solution.
func TestSlides(t *testing.T) {
	need.Long(t)
	names, err := filepath.Glob(filepath.Join(slidesDir, "week-*.md"))
	if err != nil || len(names) != 7 {
		t.Fatalf("%v, have the lectures %q, want seven", err, names)
	}
	sc, used := newScreen(t), map[string]bool{}
	var shown []handout.File
	for i, name := range names {
		text := readDoc(t, name)
		shown = append(shown, handout.File{Path: strings.TrimPrefix(filepath.ToSlash(name), "../../"), Data: []byte(text)})
		list := slidesOf(filepath.Base(name), text)
		if len(list) < 20 || len(list) > 30 {
			t.Errorf("%s has %d slides, want 20 to 30", name, len(list))
		}
		classes, minutes, timelines, figures := map[string]int{}, 0, 0, 0
		for k := range list {
			s := &list[k]
			classes[s.class]++
			minutes += s.form(t)
			timelines += s.pictures(t, used)
			figures += s.figures(t, sc)
		}
		t.Logf("%s: %d slides, %d minutes, %d timelines, %d figures, %d questions", name, len(list), minutes, timelines, figures, classes["poll"])
		if minutes < 55 || minutes > 65 {
			t.Errorf("%s takes %d minutes, want about 60", name, minutes)
		}
		if timelines < 2 || figures < 2 {
			t.Errorf("%s has %d timelines and %d figures, want two of each", name, timelines, figures)
		}
		if classes["poll"] < 5 || classes["demo"] < 1 {
			t.Errorf("%s has %d questions and %d demos, want 5 and 1", name, classes["poll"], classes["demo"])
		}
		if list[0].class != "title" || list[len(list)-2].class != "take" {
			t.Errorf("%s wants a title first, and what to take home before the last slide", name)
		}
		list[len(list)-1].last(t, i+1)
	}
	svgs, err := filepath.Glob(filepath.Join(slidesDir, "pictures", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, svg := range svgs {
		if p := "pictures/" + filepath.Base(svg); !used[p] {
			t.Errorf("%s is on no slide", p)
		}
	}
	tree := solutions(t)
	for _, f := range tree {
		if !strings.Contains(f.Path, "instructor") {
			shown = append(shown, f) // a line that the lab's folder has is nobody's
		}
	}
	for _, leak := range handout.Leaks(tree, shown) {
		t.Error(leak)
	}
}

// solutions are the files of the labs' folders, with the solutions.
func solutions(t *testing.T) (tree []handout.File) {
	t.Helper()
	for _, pattern := range []string{"labs/*/*", "labs/*/instructor/_solution/*"} {
		names, err := filepath.Glob(filepath.Join("../..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if st, err := os.Stat(name); err != nil || !st.Mode().IsRegular() {
				continue
			}
			tree = append(tree, handout.File{Path: strings.TrimPrefix(filepath.ToSlash(name), "../../"), Data: []byte(readDoc(t, name))})
		}
	}
	if !slices.ContainsFunc(tree, func(f handout.File) bool { return strings.Contains(f.Path, "_solution/") }) {
		t.Fatal("no solutions found")
	}
	return tree
}
