package pages_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"btrlab/internal/testing/need"
)

// marked is what the browser says of a slide: of 1280 by 720 pixels, however large it is shown.
type marked struct {
	Title string
	// The smallest letters of code and of other text, in pixels, with some of the text.
	Code, Text         float64
	CodeSays, TextSays string
	Bottom             float64  // of the lowest thing on it but the foot
	Outside            []string // what lies beyond the edges, or on the foot
}

// measureSlides goes through the texts and pictures of all slides of the template bare.
const measureSlides = `(async () => {
	if (document.readyState !== "complete") await new Promise(done => addEventListener("load", done));
	await new Promise(done => setTimeout(done, 500)); // Marp makes long lines smaller
	return [...document.querySelectorAll("svg[data-marpit-svg] section")].map(s => {
		const at = s.getBoundingClientRect(), k = 1280 / at.width;
		const out = { title: (s.querySelector("h1") || s).textContent, code: 999, text: 999, codeSays: "", textSays: "", bottom: 0, outside: [] };
		const lies = (r, says) => {
			const right = (r.right - at.left) * k, bottom = (r.bottom - at.top) * k;
			out.bottom = Math.max(out.bottom, bottom);
			if (right > 1262 || bottom > 676) out.outside.push(says + " ends at " + Math.round(right) + "," + Math.round(bottom));
		};
		const walk = document.createTreeWalker(s, NodeFilter.SHOW_TEXT);
		for (let n = walk.nextNode(); n; n = walk.nextNode()) {
			const says = n.textContent.trim().slice(0, 30);
			if (!says) continue;
			const style = getComputedStyle(n.parentElement), block = n.parentElement.closest("code, p, li, td, th, h1, footer, pre");
			const px = parseFloat(style.fontSize) * block.getBoundingClientRect().width / block.offsetWidth * k;
			const kind = style.fontFamily.includes("Mono") ? "code" : "text";
			if (px < out[kind]) { out[kind] = px; out[kind + "Says"] = says; }
			if (n.parentElement.closest("footer")) continue;
			const range = document.createRange();
			range.selectNodeContents(n);
			for (const r of range.getClientRects()) lies(r, says);
		}
		for (const img of s.querySelectorAll("img")) {
			if (img.naturalWidth === 0) out.outside.push("no picture " + img.src);
			lies(img.getBoundingClientRect(), "picture " + img.alt);
		}
		return out;
	});
})()`

// Every slide can be read from the last row: code has 16 pixels of the 720 of a page and other text
// 21.3, which are 24 and 32 of 1080; nothing lies beyond an edge. Letters of pictures are of
// TestSlidesType in internal/cli.
func TestSlidesInChromium(t *testing.T) {
	browser := need.Browser(t)
	b := browse(t)
	b.base = "file://"
	for _, page := range marp(t, browser) {
		b.call("Page.navigate", map[string]any{"url": "file://" + page}, nil)
		var slides []marked
		b.eval(measureSlides, &slides)
		if len(slides) < 20 {
			t.Errorf("%s has %d slides", page, len(slides))
		}
		for i, s := range slides {
			at := fmt.Sprintf("%s, slide %d (%s)", filepath.Base(page), i+1, s.Title)
			t.Logf("%s: code %.1f, text %.1f, to %.0f", at, s.Code, s.Text, s.Bottom)
			if s.Code < 16 {
				t.Errorf("%s: code of %.1f pixels, want 16: %q", at, s.Code, s.CodeSays)
			}
			if s.Text < 21.3 {
				t.Errorf("%s: text of %.1f pixels, want 21.3: %q", at, s.Text, s.TextSays)
			}
			for _, out := range s.Outside {
				t.Errorf("%s: %s", at, out)
			}
		}
	}
}

// marp makes pages of the slides, each with all its slides in a column, by the Marp of the
// Makefile.
func marp(t *testing.T, browser string) (pages []string) {
	t.Helper()
	const root = "../../.."
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	must(t, err)
	run := regexp.MustCompile(`(?m)^MARP \?= (npx .*)$`).FindSubmatch(makefile)
	if run == nil {
		t.Fatal("the Makefile has no MARP")
	}
	need.All(t, "npx")
	dir := t.TempDir()
	must(t, os.CopyFS(dir, os.DirFS(filepath.Join(root, "labs/guide/instructor/slides"))))
	decks, err := filepath.Glob(filepath.Join(dir, "week-*.md"))
	must(t, err)
	args := append(strings.Fields(string(run[1])), "--no-stdin", "--no-config-file", "--template", "bare", "--theme", filepath.Join(dir, "btrlab.css"), "--allow-local-files")
	cmd := exec.Command(args[0], append(args[1:], decks...)...)
	cmd.Env = append(append(os.Environ(), npmSoon...), "CHROME_PATH="+browser)
	if out, err := cmd.CombinedOutput(); err != nil {
		need.Without(t, fmt.Sprintf("Marp, by %q: %v\n%s", run[1], err, out))
	}
	for _, d := range decks {
		pages = append(pages, strings.TrimSuffix(d, ".md")+".html")
	}
	return pages
}
