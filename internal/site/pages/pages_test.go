package pages_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"btrlab/internal/site/pages"
	"btrlab/internal/testing/need"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// loadMax is the most that a browser loads, in bytes.
const loadMax = 4_700_000

// firstMax is the most that it loads until a warm-up level can be played.
const firstMax = 300_000

// scratch is the folder of the site that the tests share.
var scratch string

func TestMain(m *testing.M) {
	code := run(m)
	os.Exit(code)
}

func run(m *testing.M) int {
	var err error
	if scratch, err = os.MkdirTemp("", "btrlab-site-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(scratch)
	return m.Run()
}

// build makes the site as make site does, and returns the bytes to load.
var build = sync.OnceValues(func() (int, error) {
	wasm := filepath.Join(scratch, "btrlab.wasm")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", wasm, "btrlab/cmd/btrlab-web")
	cmd.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm")
	if out, err := cmd.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("%w\n%s", err, out)
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return 0, err
	}
	var p pages.Parts
	if p.Wasm, err = os.ReadFile(wasm); err != nil {
		return 0, err
	}
	if p.WasmExec, err = os.ReadFile(filepath.Join(strings.TrimSpace(string(root)), "lib/wasm/wasm_exec.js")); err != nil {
		return 0, err
	}
	return pages.Write(filepath.Join(scratch, "site"), p)
})

// built is the folder of the site.
func built(t *testing.T) string {
	t.Helper()
	n, err := build()
	must(t, err)
	dir := filepath.Join(scratch, "site")
	page, err := os.Stat(filepath.Join(dir, pages.Page))
	must(t, err)
	t.Logf("the site is %d bytes to load, %d of them until the first move", n, page.Size())
	if n > loadMax || page.Size() > firstMax {
		t.Errorf("bad size of the site, have %d bytes and %d until the first move, want at most %d and %d", n, page.Size(), loadMax, firstMax)
	}
	return dir
}

// TestInChromium: a browser that has the site as files, and no network, plays it by the keyboard
// alone: the truncate gets lost at the stepper, the explorer finds the same schedule, and exhausts
// the drain.
func TestInChromium(t *testing.T) {
	need.Long(t)
	b := browse(t)
	site := built(t)
	b.show(1200, 900, "light")
	b.base = "file://" + site + "/"
	b.open("#step")
	t.Log("the page is", b.text("#status"))
	b.shot("step")

	// A word is explained by its button.
	b.tabTo("#term-planLocked")
	b.press("Enter")
	b.until("document.querySelector('#step-term').textContent.startsWith('planLocked: makes the plan')")
	if text := b.text("#step-legend"); !strings.Contains(text, "i_size the size of the file") || !strings.Contains(text, "c clean") {
		t.Errorf("the legend says %q", text)
	}
	b.shot("words")

	// The writer up to where it has let the lock go, then the truncate until it waits, then to the
	// end.
	if text := b.text("#step-goal"); text != "make the truncate get lost" {
		t.Errorf("the goal is %q", text)
	}
	did := func() (n int) {
		b.eval("document.querySelectorAll('#step-did li').length", &n)
		return n
	}
	for n := did(); n == 0 || !strings.Contains(b.text("#step-did li"), "unlock i_rwsem"); n++ {
		b.press("0")
		b.until(fmt.Sprintf("document.querySelectorAll('#step-did li').length > %d", n))
		if n > 50 {
			t.Fatalf("the writer never lets the lock go: %s", b.text("#step-did"))
		}
	}
	b.press("1")
	b.until("document.querySelector('#step-did li').textContent.includes('truncate')")
	b.shot("race")
	b.press("f")
	b.until("document.querySelector('#step-verdict .bad')")
	var address string
	b.eval("location.hash", &address)
	t.Log(address, b.text("#step-verdict .head"))
	b.shot("lost")

	// Another scenario, by the keyboard: a search, the second of what it finds.
	b.open("#step")
	b.tabTo("#step-scenario")
	b.press("Enter")
	b.until("document.activeElement.id === 'step-search' && document.querySelectorAll('#step-list li').length > 100")
	b.shot("scenarios")
	b.press(strings.Split("ring-", "")...)
	b.until("document.querySelector('#step-count').textContent.startsWith('8 of ')")
	if text := b.text("#step-list .found"); !strings.HasPrefix(text, "io_uring") || !strings.Contains(text, "ring-nowait") {
		t.Errorf("the search finds %q", text)
	}
	b.press("ArrowDown", "ArrowDown", "ArrowUp", "ArrowDown")
	var name string
	b.eval("document.activeElement.dataset.name || ''", &name)
	b.press("Enter")
	b.until(fmt.Sprintf("document.querySelector('#step-list').hidden && location.hash.startsWith('#step?scenario=%s&')", name))
	if b.text("#step-scenario") != name || name != "ring-nowait" {
		t.Errorf("the scenario is %q, chosen %q", b.text("#step-scenario"), name)
	}
	b.open("#step?scenario=truncate-race&policy=unlocked-drain")
	b.until("document.querySelector('#step-scenario').textContent === 'truncate-race' && document.querySelector('#step-policy').value === 'unlocked-drain'")

	// The address shows the same place in a new page, which comes from a web server now.
	server := httptest.NewServer(http.FileServer(http.Dir(site)))
	t.Cleanup(server.Close)
	b.base = server.URL + "/"
	b.open(address)
	b.until("document.querySelector('#step-verdict .bad')")

	// Explore, by Tab and Enter.
	b.tabTo("nav a[data-page=explore]")
	b.press("Enter")
	b.until("!document.querySelector('#page-explore').hidden")
	explore := func(policy string) string {
		b.eval(fmt.Sprintf("document.querySelector('#explore-policy').value = %q", policy), nil)
		b.tabTo("#explore-go")
		b.press("Enter")
		b.until("document.querySelector('#explore-found .verdict')")
		return b.text("#explore-found .verdict")
	}
	found := explore("unlocked")
	t.Log(found)
	if !strings.Contains(found, "violated in schedule 9, 1 preemption") || !strings.Contains(found, "replay truncate-race 11:1 --policy unlocked") {
		t.Errorf("the explorer finds no lost truncate: %s", found)
	}
	b.tabTo("#explore-found button")
	b.press("Enter")
	b.until("document.querySelector('#explore-found iframe')")
	b.shot("explore")
	drain := explore("unlocked-drain")
	t.Log(drain)
	if !strings.Contains(drain, "exhausted: 288 schedules") {
		t.Errorf("the drain is not exhausted: %s", drain)
	}
	// The first warm-up level is won with three keys, and the third with the word never.
	b.open("#levels")
	b.until("document.querySelector('#levels-rule').textContent === 'x is 2 at the end'")
	b.press("0", "1", "f")
	b.until("document.querySelector('#step-verdict .verdict')")
	if text := b.text("#step-verdict"); !strings.Contains(text, "Won") || !strings.Contains(text, "x is 1 at the end") || !strings.Contains(text, "preemption") {
		t.Errorf("level 1 is not won: %s", text)
	}
	b.shot("levels")
	b.tabTo("#levels-next")
	b.press("Enter")
	b.until("document.querySelectorAll('.program').length === 3")
	b.eval("location.hash = '#levels?level=one-lock'", nil)
	b.until("document.querySelector('.program').textContent.includes('lock m')")
	b.press("x")
	b.until("document.querySelector('#levels-said .verdict')")
	if text := b.text("#levels-said"); !strings.Contains(text, "Won") || !strings.Contains(text, "exhausted") {
		t.Errorf("never is not the answer: %s", text)
	}

	// A program of the visitor's: the example breaks, its mended form does not, and the address
	// holds it; an error names its line.
	b.open("#own")
	b.until("document.querySelectorAll('#own-board .program').length === 2")
	b.tabTo("#own-go")
	b.press("Enter")
	b.until("document.querySelector('#own-walk')")
	if text := b.text("#own-found"); !strings.Contains(text, "x is 1 at the end") || !strings.Contains(text, "1 preemption") {
		t.Errorf("the example does not break: %s", text)
	}
	b.shot("own")
	b.tabTo("#own-walk")
	b.press("Enter")
	b.until("document.querySelector('#own-note').textContent === ''")
	b.tabTo("#move-next")
	b.press("f")
	b.until("document.querySelector('#step-verdict .bad')")
	b.open("#own?program=" + url.QueryEscape("x = 0\nrule x is 2\ntask a\nx += 1\ntask b\nx += 1\n"))
	b.until("document.querySelectorAll('#own-board .program').length === 2 && document.querySelector('#own-text').value.includes('x += 1')")
	b.tabTo("#own-go")
	b.press("Enter")
	b.until("document.querySelector('#own-found .verdict').textContent.includes('exhausted')")
	b.eval("location.hash", &address)
	if !strings.Contains(address, "x+%2B%3D+1") {
		t.Errorf("the address has no program: %s", address)
	}
	b.eval("document.querySelector('#own-text').value = 'x = 0\\ntask a\\nx -= 1'", nil)
	b.press("Enter")
	b.until("document.querySelector('#own-note').textContent.includes('line 3')")
	if text := b.text("#own-note"); text != `line 3: have "x -= 1", want lock, unlock, = or +=` {
		t.Errorf("the error is %q", text)
	}

	// A search without end stops when it is told to, and says how far it came.
	b.open("#explore?scenario=enospc&policy=modern")
	b.eval(`document.querySelector("#explore-bound").value = "-1"`, nil)
	b.tabTo("#explore-go")
	b.press("Enter")
	// it tells of itself
	b.until("document.querySelector('#explore-note').textContent.includes('schedules')")
	b.tabTo("#explore-stop")
	b.press("Enter")
	b.until("document.querySelector('#explore-found .verdict')")
	if text := b.text("#explore-found .verdict"); !strings.Contains(text, "stopped") || !strings.Contains(text, "no violation in") {
		t.Errorf("a stopped search says %q", text)
	}

	// One that does not hear it ends with its worker, and a new worker answers.
	b.eval(`const post = Worker.prototype.postMessage;
		Worker.prototype.postMessage = function (m) { if (m.what !== "stop") post.call(this, m); }`, nil)
	b.tabTo("#explore-go")
	b.press("Enter")
	b.until("document.querySelector('#explore-note').textContent.includes('schedules')")
	b.tabTo("#explore-stop")
	b.press("Enter")
	b.until("document.querySelector('#explore-note').textContent.startsWith('stopped; the worker')")
	b.open("#explore?scenario=truncate-race")
	b.until("document.querySelector('#explore-scenario').textContent === 'truncate-race'")
	if drain := explore("unlocked-drain"); !strings.Contains(drain, "exhausted: 288 schedules") {
		t.Errorf("the new worker says %q", drain)
	}

	// An exhibit of the museum, and a switch that mends the policy that it is about.
	b.open("#museum?exhibit=1")
	b.tabTo("#museum-go")
	b.press("Enter")
	b.until("document.querySelector('#museum-found iframe')")
	if text := b.text("#museum-note"); !strings.Contains(text, "proves itself") || strings.Contains(text, "not prove") {
		t.Errorf("exhibit 1: %s", text)
	}
	b.shot("museum")
	b.open("#policies?policy=unlocked")
	b.until("document.querySelector('#policies-promise').textContent.includes('may be undone')")
	b.tabTo("#switch-SETSIZE_DRAIN_FIRST")
	b.press(" ")
	b.until("document.querySelector('#policies-promise').textContent.endsWith('a truncate that has returned holds')")
	b.shot("policies")
	b.tabTo("#policies-explore")
	b.press("Enter")
	b.until("document.querySelector('#explore-policy').value === 'unlocked+SETSIZE_DRAIN_FIRST'")

	b.open("#measured")
	b.until("!document.querySelector('#page-measured').hidden")
	if text := b.text("#page-measured"); !strings.Contains(text, "ssd-raid5") || !strings.Contains(text, "recorded") {
		t.Errorf("the measured page says %q", text)
	}
	b.shot("measured")

	if len(b.errors) > 0 {
		t.Errorf("errors on the page:\n%s", strings.Join(b.errors, "\n"))
	}
}
