package pages_test

import (
	"flag"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
)

var (
	coldStarts = flag.Int("cold", 0, "measure the first move of a warm-up level so many times, each in a new browser")
	slower     = flag.Float64("slower", 4, "with -cold: how many times slower the browser's main thread is made")
	megabits   = flag.Float64("mbit", 0, "with -cold: Mbit/s of the network, and 40 ms until an answer; 0 is no limit")
	measured   = flag.String("site", "", "with -cold: the folder of the site; empty builds it")
)

// firstMove presses 0 every 20 ms from the beginning of the page on, until a step is done, and then
// keeps the time since the page was asked for.
const firstMove = `const again = setInterval(() => {
	if (!document.body || !document.querySelector("#step-did")) return;
	if (document.querySelector("#step-did li")) { globalThis.firstMove = performance.now(); clearInterval(again); return; }
	document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "0", code: "Digit0", bubbles: true }));
}, 20)`

// TestFirstMove measures; it asserts nothing, and does nothing without -cold:
//
//	go test ./internal/site/pages -run TestFirstMove -cold 5 -v
//
// The page comes from a web server of this machine, which packs nothing. CPU throttling makes the
// main thread slower; the worker, which compiles the program, keeps the speed of the machine.
func TestFirstMove(t *testing.T) {
	if *coldStarts == 0 {
		return // a measurement, on demand; no test of CI is skipped
	}
	dir := *measured
	if dir == "" {
		dir = built(t)
	}
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	t.Cleanup(server.Close)
	var first, listed, whole []float64
	for range *coldStarts {
		b := browse(t) // a new profile
		b.base = server.URL + "/"
		b.call("Emulation.setCPUThrottlingRate", map[string]any{"rate": *slower}, nil)
		b.call("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": firstMove}, nil)
		if *megabits > 0 {
			b.call("Network.emulateNetworkConditions", map[string]any{"offline": false, "latency": 40, "downloadThroughput": *megabits * 1e6 / 8, "uploadThroughput": -1}, nil)
		}
		b.call("Page.navigate", map[string]any{"url": b.base + "#levels"}, nil)
		var ms float64
		b.eval(`new Promise(done => { const again = setInterval(() => { if (globalThis.firstMove) { clearInterval(again); done(firstMove); } }, 5); })`, &ms)
		first = append(first, ms)
		b.until("document.documentElement.dataset.ready")
		b.eval("Number(document.documentElement.dataset.listed)", &ms)
		listed = append(listed, ms)
		b.eval("Number(document.documentElement.dataset.ready)", &ms)
		whole = append(whole, ms)
	}
	say := func(what, unit string, l []float64) {
		slices.Sort(l)
		t.Logf("%s: median %.0f %s, %.0f to %.0f in %d runs at %g times slower", what, l[len(l)/2], unit, l[0], l[len(l)-1], len(l), *slower)
	}
	say("first move", "ms", first)
	say("catalog there", "ms", listed)
	say("program ready", "ms", whole)
}
