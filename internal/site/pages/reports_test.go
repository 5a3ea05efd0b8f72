package pages_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The pages that the commands write, in a window of 375 pixels: none is wider than the window. What
// is wider scrolls inside, and says so; the marks of what was published are inside the window.
func TestReportsInChromium(t *testing.T) {
	b := browse(t)
	dir := t.TempDir()
	btrlab := filepath.Join(dir, "btrlab")
	run := func(name string, args ...string) {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil && (name == "go" || cmd.ProcessState.ExitCode() != 1) { // 1: it violates
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	root, err := filepath.Abs("../../..")
	must(t, err)
	run("go", "build", "-C", root, "-o", btrlab, "./cmd/btrlab")
	must(t, os.WriteFile(filepath.Join(dir, "job.fio"), []byte("[w]\nrw=randwrite\nbs=4k\nsize=4m\nnumjobs=4\nio_size=256k\n"), 0o644))
	run(btrlab, "replay", "truncate-race", "11:1", "--policy", "unlocked", "--out", "race.html")
	run(btrlab, "bench", "job.fio", "--runtime", "vtime", "--gantt", "gantt.html")
	run(btrlab, "reproduce", "002", "--size", "16M", "--runtime-seconds", "0.05", "--out", "reproduce.html")
	b.base = "file://" + dir + "/"
	b.show(375, 800, "light")
	open := func(page string) {
		t.Helper()
		b.call("Page.navigate", map[string]any{"url": b.base + page}, nil)
		b.eval("new Promise(done => document.readyState === 'complete' ? done() : addEventListener('load', () => done()))", nil)
		var wide int
		b.eval("document.documentElement.scrollWidth", &wide)
		if wide > 375 {
			t.Errorf("%s is %d pixels wide in a window of 375", page, wide)
		}
		if *shots != "" {
			for _, width := range []int{1280, 375} {
				for _, scheme := range []string{"light", "dark"} {
					b.show(width, 1000, scheme)
					b.picture(filepath.Join(*shots, fmt.Sprintf("%s-%d-%s.png", page, width, scheme)))
				}
			}
			b.show(375, 800, "light")
		}
	}
	holds := func(page, what string) {
		t.Helper()
		var held bool
		b.eval(what, &held)
		if !held {
			t.Errorf("%s: this does not hold: %s", page, what)
		}
	}
	open("race.html")
	holds("race.html", "!document.querySelector('#hint').hidden && document.querySelector('.scroll').scrollWidth > document.querySelector('.scroll').clientWidth")
	// the keys show the step, and the lane it is in
	b.press("End", "x")
	holds("race.html", `(() => { const r = document.querySelector(".on .box").getBoundingClientRect(), f = document.querySelector(".scroll").getBoundingClientRect();
		return r.left >= f.left && r.left < f.right - 50 && r.top >= f.top && r.bottom <= f.bottom; })()`)
	open("gantt.html")
	holds("gantt.html", `[...document.querySelectorAll("svg.full")].every(p => p.parentElement.scrollWidth > p.parentElement.clientWidth && getComputedStyle(p.parentElement, "::before").content.includes("sideways"))`)
	open("reproduce.html")
	holds("reproduce.html", `(() => { const marks = [...document.querySelectorAll(".mark")].map(m => m.getBoundingClientRect()).filter(r => r.width > 0);
		return document.body.textContent.includes("Diamonds: published") && marks.length >= 2 && marks.every(r => r.left >= 0 && r.right <= 375); })()`)
	if len(b.errors) > 0 {
		t.Errorf("errors on a page:\n%s", strings.Join(b.errors, "\n"))
	}
}
