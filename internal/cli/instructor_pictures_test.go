package cli

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"btrlab/internal/cli/app"
	"btrlab/internal/draw"
	"btrlab/internal/testing/pagetest"
)

var picturesRewrite = flag.Bool("pictures.rewrite", false, "draw the pictures of the slides again that no replay draws")

// picturesCommand is in the note of a slide with such a picture.
const picturesCommand = "`go test ./internal/cli -run TestSlidePictures -pictures.rewrite`"

// drawnPictures are the pictures of slides that are no timelines: each is drawn from what commands
// print.
var drawnPictures = map[string]func(t *testing.T, p *sketch){
	"file.svg":    drawFile,
	"log.svg":     drawLog,
	"kernels.svg": drawKernels,
	"surface.svg": drawSurface,
}

// TestSlidePictures: the pictures of the slides that are no timelines are what is drawn now.
func TestSlidePictures(t *testing.T) {
	for name, picture := range drawnPictures {
		t.Run(name, func(t *testing.T) {
			var p sketch
			picture(t, &p)
			have := p.svg()
			pagetest.WellFormedXML(t, have)
			path := filepath.Join(slidesDir, "pictures", name)
			if *picturesRewrite {
				if err := os.WriteFile(path, []byte(have), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if readDoc(t, path) != have {
				t.Errorf("%s is not what is drawn now: go test ./internal/cli -run TestSlidePictures -pictures.rewrite", name)
			}
		})
	}
}

// sketch is a picture of boxes and words, as wide as a slide.
type sketch struct {
	b      draw.Writer
	title  string
	height int
}

// Of a sketch: its width, the size of its letters and the width of one of code.
const sketchWidth, sketchLetters, sketchColumn = 1200, 22, 13.25

const sketchCSS = `text { font: 22px "DejaVu Sans Mono", "Liberation Mono", Menlo, Consolas, monospace; fill: var(--ink); }
.name { font-weight: 700; } .soft { fill: var(--soft); } .bad { font-weight: 700; fill: var(--bad); }
.box { fill: var(--box); stroke: var(--soft); stroke-width: 1.5; } .old { fill: var(--head); stroke: var(--soft); stroke-width: 1.5; }
.new { fill: var(--held); stroke: var(--heldedge); stroke-width: 2; } .busy { fill: url(#hatch); stroke: var(--ink); stroke-width: 2; stroke-dasharray: 6 4; }
.label { fill: var(--paper); } .line { stroke: var(--ink); stroke-width: 2; fill: none; } .grid { stroke: var(--lane); stroke-width: 1.5; }
.want { stroke: var(--bad); stroke-width: 3; stroke-dasharray: 10 6; }`

func (p *sketch) svg() string {
	var b draw.Writer
	b.Add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img"><title>%s</title>`, sketchWidth, p.height, sketchWidth, p.height, p.title)
	b.Add(`<style>%s</style>`, draw.HTML(draw.Light(sketchCSS)))
	b.Add(`<defs><pattern id="hatch" width="9" height="9" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="9" height="9" fill="#fff"/><line x1="0" y1="0" x2="0" y2="9" stroke="#999" stroke-width="2"/></pattern>` +
		`<marker id="to" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="9" markerHeight="9" orient="auto"><path d="M0 0 L10 5 L0 10 z" fill="#111"/></marker></defs>`)
	b.Add(`<rect width="%d" height="%d" fill="#fff"/>%s</svg>`, sketchWidth, p.height, p.b.HTML())
	return b.String()
}

// text writes words at x; anchor is start, middle or end.
func (p *sketch) text(x, y int, class, anchor, words string) {
	p.b.Add(`<text x="%d" y="%d" class="%s" text-anchor="%s">%s</text>`, x, y, class, anchor, words)
}

// box draws a box with lines of words in its middle.
func (p *sketch) box(x, y, w, h int, class string, lines ...string) {
	p.b.Add(`<rect x="%d" y="%d" width="%d" height="%d" rx="4" class="%s"/>`, x, y, w, h, class)
	for i, l := range lines {
		at := y + h/2 + 8 + (2*i-len(lines)+1)*14
		if class == "busy" {
			wide := int(float64(len([]rune(l))) * sketchColumn)
			p.b.Add(`<rect x="%d" y="%d" width="%d" height="30" class="label"/>`, x+w/2-wide/2-6, at-23, wide+12)
		}
		p.text(x+w/2, at, "", "middle", l)
	}
}

func (p *sketch) arrow(x1, y1, x2, y2 int) {
	p.b.Add(`<line x1="%d" y1="%d" x2="%d" y2="%d" class="line" marker-end="url(#to)"/>`, x1, y1, x2, y2)
}

// overwritten is a file of 16K of which [4K, 12K) was written again, and fsynced, before the power
// went: the items of its log, and those of the last commit, as btrlab dump prints them.
type overwritten struct {
	log, tree  string
	old, fresh string // where the bytes are on disk
}

func overwrite(t *testing.T) overwritten {
	t.Helper()
	dir := t.TempDir()
	image, script, empty := filepath.Join(dir, "disk.img"), filepath.Join(dir, "script"), filepath.Join(dir, "f")
	for name, text := range map[string]string{empty: "", script: "put " + empty + " /f\nwrite --length 16k /f\nsync\nwrite --length 8k --offset 4k /f\nfsync /f\n"} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run := func(want int, args ...string) string {
		var out, errw bytes.Buffer
		if code := Main(args, strings.NewReader(""), &out, &errw); code != want {
			t.Fatalf("%q: exit %d, want %d: %s", args, code, want, &errw)
		}
		return out.String()
	}
	run(app.ExitOK, "mkfs", "--quiet", "--size", "256M", image)
	// The power goes before the commit at the end.
	run(app.ExitFailed, "sh", "--policy", "fsync-5.18", "--fault", "eio:flush:5+", image, script)
	o := overwritten{log: run(app.ExitOK, "dump", "log", image), tree: run(app.ExitOK, "dump", "tree", "fs", image)}
	place := regexp.MustCompile(`key \(257 EXTENT_DATA \d+\)[^\n]*\n[^\n]*\n\s*extent data disk byte (\d+) nr (\d+)`)
	old, fresh := place.FindStringSubmatch(o.tree), place.FindStringSubmatch(o.log)
	if old == nil || fresh == nil || old[2] != "16384" || fresh[2] != "8192" {
		t.Fatalf("have the extents %q and %q, want one of 16384 bytes and one of 8192\n%s", old, fresh, o.log)
	}
	o.old, o.fresh = mebibytes(t, old[1]), mebibytes(t, fresh[1])
	return o
}

// mebibytes writes a multiple of 4096 as MiB and KiB.
func mebibytes(t *testing.T, bytes string) string {
	n, err := strconv.Atoi(bytes)
	if err != nil || n%4096 != 0 {
		t.Fatalf("bad address %q", bytes)
	}
	if n&(1<<20-1) == 0 {
		return fmt.Sprintf("%dM", n>>20)
	}
	return fmt.Sprintf("%dM+%dK", n>>20, n>>10&1023)
}

// drawFile draws the four tables that know where a byte of a file is, while a write goes to disk.
func drawFile(t *testing.T, p *sketch) {
	o := overwrite(t)
	p.title, p.height = "A file of 16K while [4K, 12K) is written back", 440
	const left, page, row, high = 250, 235, 72, 58
	x := func(pages int) int { return left + pages*page }
	for i, at := range []string{"0", "4K", "8K", "12K", "16K"} {
		p.b.Add(`<line x1="%d" y1="34" x2="%d" y2="346" class="grid"/>`, x(i), x(i))
		p.text(min(x(i), sketchWidth-24), 24, "soft", "middle", at)
	}
	name := func(i int, words, where string) int {
		y := 40 + i*(row+8)
		p.text(0, y+24, "name", "start", words)
		p.text(0, y+52, "soft", "start", where)
		return y
	}
	y := name(0, "page cache", "memory")
	for i, state := range []string{"clean", "writeback", "writeback", "clean"} {
		p.box(x(i)+3, y, page-6, high, []string{"old", "busy", "busy", "old"}[i], state)
	}
	y = name(1, "extent map", "memory")
	p.box(x(0)+3, y, page-6, high, "old", o.old)
	p.box(x(1)+3, y, 2*page-6, high, "new", o.fresh)
	p.box(x(3)+3, y, page-6, high, "old", "the rest of it")
	y = name(2, "ordered extent", "memory")
	p.box(x(1)+3, y, 2*page-6, high, "new", "8K to "+o.fresh+", not ended")
	y = name(3, "extent item", "tree, committed")
	p.box(x(0)+3, y, 4*page-6, high, "old", "EXTENT_DATA 0: 16K at "+o.old)
	y = name(4, "device", "")
	p.box(x(0)+3, y, 2*page-12, high, "old", o.old+": old bytes")
	p.box(x(2)+9, y, 2*page-12, high, "busy", o.fresh+": on the way")
}

// drawLog draws a log tree beside the tree that it belongs to.
func drawLog(t *testing.T, p *sketch) {
	o := overwrite(t)
	items := func(dump string) (keys []string) {
		for _, m := range regexp.MustCompile(`item \d+ key \(((?:257|EXTENT_CSUM) [^)]*)\)`).FindAllStringSubmatch(dump, -1) {
			keys = append(keys, regexp.MustCompile(`^EXTENT_CSUM EXTENT_CSUM \d+`).ReplaceAllString(m[1], "EXTENT_CSUM"))
		}
		return keys
	}
	p.title, p.height = "The tree of the last commit and the log beside it", 460
	p.box(440, 4, 320, 56, "box", "superblock")
	p.arrow(480, 60, 270, 108)
	p.text(240, 92, "soft", "end", "root")
	p.arrow(720, 60, 930, 108)
	p.text(960, 92, "soft", "start", "log_root")
	column := func(x int, class, head, sub string, keys, says []string) {
		p.text(x, 140, "name", "start", head)
		p.text(x, 170, "soft", "start", sub)
		for i, k := range keys {
			p.box(x, 186+i*66, 550, 56, class, k+says[i])
		}
	}
	column(10, "old", "tree of the subvolume", "the last commit: whole", items(o.tree), []string{"", "", ": 16K at " + o.old})
	column(640, "new", "log of the subvolume", "since then, of this file only", items(o.log), []string{"", ": 8K at " + o.fresh, ": of these 8K"})
	if have := len(items(o.tree)); have != 3 {
		t.Errorf("the tree has %d items of the file, want 3:\n%s", have, o.tree)
	}
	if have := len(items(o.log)); have != 3 {
		t.Errorf("the log has %d items, want 3:\n%s", have, o.log)
	}
	p.text(10, 420, "", "start", "A mount puts them into the tree: [4K, 12K) leads to the new bytes,")
	p.text(10, 450, "", "start", "and what the log does not name stays as it is.")
}

// drawKernels draws the beginning of one fsync in two kernels.
func drawKernels(t *testing.T, p *sketch) {
	var out, errw bytes.Buffer
	if code := Main(strings.Fields("conform --between 5.10,7.3 --op fsync-fast"), strings.NewReader(""), &out, &errw); code != app.ExitOK {
		t.Fatalf("exit %d: %s", code, &errw)
	}
	_, text, _ := strings.Cut(out.String(), "on the task\n")
	head, text, _ := strings.Cut(text, "\n")
	mark := strings.Index(head, "Linux 7.3")
	p.title, p.height = "The same fsync in Linux 5.10 and 7.3, step by step", 490
	const line, middle = 36, 606
	p.text(10, 26, "name", "start", "Linux 5.10")
	p.text(middle+10, 26, "name", "start", "Linux 7.3")
	p.b.Add(`<line x1="%d" y1="0" x2="%d" y2="490" class="grid"/>`, middle, middle)
	y := 0
	for l := range strings.Lines(text) {
		cells := []rune(strings.TrimSuffix(l, "\n"))
		left, right := "", ""
		if len(cells) > mark {
			left, right = string(cells[:mark]), strings.TrimSpace(string(cells[mark:]))
		} else {
			left = string(cells)
		}
		how := ""
		if m := regexp.MustCompile(`^(.*?)\s+(missing|extra|count|order|value)\s*$`).FindStringSubmatch(left); m != nil {
			left, how = m[1], m[2]
		}
		left = strings.Join(strings.Fields(left), " ")
		if y++; y > 12 {
			break
		}
		for i, words := range []string{left, right} {
			if words == "" {
				continue
			}
			class := "old"
			if how != "" {
				class = "new"
			}
			p.b.Add(`<rect x="%d" y="%d" width="586" height="32" rx="4" class="%s"/>`, i*middle+4, y*line+6, class)
			p.text(i*middle+14, y*line+29, "", "start", words)
		}
	}
}

// drawSurface draws the gains of labs/reference 12.3 as points with what chance moves them by.
func drawSurface(t *testing.T, p *sketch) {
	page := readDoc(t, "../../labs/reference/12-seed-003.md")
	rows := regexp.MustCompile(`(?m)^\| (\d+ us) \| (-?[\d.]+) \| (-?[\d.]+) \| (-?[\d.]+) \| (-?[\d.]+) \|$`).FindAllStringSubmatch(page, -1)
	chance := regexp.MustCompile(`chance moves the gain by (\d+)`).FindStringSubmatch(page)
	if len(rows) != 3 || chance == nil {
		t.Fatalf("the page has %d rows and %q", len(rows), chance)
	}
	half, _ := strconv.ParseFloat(chance[1], 64)
	p.title, p.height = "The gain at twelve points, each with what chance moves it by", 500
	const left, group, unit, zero = 90, 270, 20, 280
	y := func(gain float64) int { return zero - int(gain*unit) }
	for gain := -8; gain <= 12; gain += 4 {
		p.b.Add(`<line x1="%d" y1="%d" x2="1190" y2="%d" class="grid"/>`, left, y(float64(gain)), y(float64(gain)))
		p.text(left-12, y(float64(gain))+8, "soft", "end", fmt.Sprintf("%d %%", gain))
	}
	p.b.Add(`<line x1="%d" y1="%d" x2="1190" y2="%d" class="want"/>`, left, y(7.8), y(7.8))
	p.text(left+8, y(7.8)-10, "bad", "start", "published: 7.8 %, one run each")
	for i, name := range []string{"below 33 %", "67 %", "80 %", "100 %"} {
		p.text(left+60+i*group+75, 492, "", "middle", name)
		for k, r := range rows {
			gain, err := strconv.ParseFloat(r[2+i], 64)
			if err != nil {
				t.Fatal(err)
			}
			x := left + 60 + i*group + k*75
			p.b.Add(`<path d="M%d %d V%d M%d %d H%d M%d %d H%d" class="line"/>`, x, y(gain-half), y(gain+half), x-10, y(gain-half), x+10, x-10, y(gain+half), x+10)
			switch k {
			case 0:
				p.b.Add(`<circle cx="%d" cy="%d" r="9" fill="#000"/>`, x, y(gain))
			case 1:
				p.b.Add(`<rect x="%d" y="%d" width="18" height="18" fill="#d55e00"/>`, x-9, y(gain)-9)
			default:
				p.b.Add(`<path d="M%d %d l11 18 h-22 z" fill="#0072b2"/>`, x, y(gain)-11)
			}
		}
	}
	p.text(0, 24, "soft", "start", "gain, by the limit below which a leaf is small")
	p.text(1190, 24, "soft", "end", "● 1 us  ■ 17 us  ▲ 38 us a block")
}
