package pages_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/testing/need"
)

// axeVersion is the axe-core that judges, a package of npm.
const axeVersion = "4.14.1"

// npmSoon are settings of npm: what it has is enough, and without a network it gives up soon.
var npmSoon = []string{"npm_config_prefer_offline=true", "npm_config_fetch_retries=1", "npm_config_fetch_timeout=30000"}

// axe is the text of axe-core, or skips the test where npm has none to give.
func axe(t *testing.T) string {
	t.Helper()
	need.All(t, "npm")
	dir := t.TempDir()
	cmd := exec.Command("npm", "install", "--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", dir, "axe-core@"+axeVersion)
	cmd.Env = append(os.Environ(), npmSoon...)
	if out, err := cmd.CombinedOutput(); err != nil {
		need.Without(t, fmt.Sprintf("axe-core, from npm: %v\n%s", err, out))
	}
	text, err := os.ReadFile(filepath.Join(dir, "node_modules", "axe-core", "axe.min.js"))
	must(t, err)
	return string(text)
}

// barrier is a rule of axe-core that the page breaks, and where.
type barrier struct {
	ID, Impact, Help string
	Nodes            []string
}

// TestAxeInChromium: axe-core finds nothing serious or critical on any page, in a broad window and
// in a narrow one, nor with a race lost, a list open and a table of results. One of its rules is
// off by default: that the name of a button has the words that can be seen.
func TestAxeInChromium(t *testing.T) {
	b := browse(t)
	text := axe(t)
	b.base = "file://" + built(t) + "/"
	judge := func(name string) {
		t.Helper()
		for _, width := range []int{1280, 375} {
			b.show(width, 1000, "light")
			var found []barrier
			b.eval(`new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))).then(() =>
				axe.run(document, { resultTypes: ["violations"], rules: { "label-content-name-mismatch": { enabled: true } } })).then(r => r.violations.map(v =>
				({ id: v.id, impact: v.impact, help: v.help, nodes: v.nodes.map(n => n.target.join(" ") + ": " + n.html.slice(0, 200)) })))`, &found)
			for _, f := range found {
				say := t.Logf
				if slices.Contains([]string{"serious", "critical"}, f.Impact) {
					say = t.Errorf
				}
				say("%s at %d: %s, %s: %s\n\t%s", name, width, f.Impact, f.ID, f.Help, strings.Join(f.Nodes, "\n\t"))
			}
		}
		b.show(1280, 1000, "light")
	}
	open := func(hash string) {
		t.Helper()
		b.open(hash)
		b.eval(text+"\n;0", nil)
	}
	for _, page := range []string{"levels", "step", "explore", "museum", "policies", "own", "measured"} {
		open("#" + page)
		judge(page)
	}
	open("#step?scenario=truncate-race&policy=unlocked&schedule=11:1&at=60")
	b.until("document.querySelector('#step-verdict .bad')")
	judge("a lost race")
	b.eval("document.querySelector('#step-scenario').click()", nil)
	judge("the list of scenarios")
	open("#explore?scenario=truncate-race&policy=unlocked")
	b.eval("document.querySelector('#explore-all').click()", nil)
	b.until("document.querySelector('#explore-note').textContent.startsWith('done') && document.querySelectorAll('#explore-found tbody tr').length > 2")
	judge("every policy")
}

// An address that names what is not there says so in one line, and what is shown in its place.
func TestUnknownAddressInChromium(t *testing.T) {
	b := browse(t)
	b.base = "file://" + built(t) + "/"
	for hash, want := range map[string]string{
		"#nosuch":                              "There is no page nosuch: this is the warm-up.",
		"#levels?level=nope":                   "There is no level nope: this is ",
		"#explore?scenario=nope":               "There is no scenario nope: this is truncate-race.",
		"#step?scenario=nope&policy=nope":      "There is no scenario nope: this is truncate-race. There is no policy nope: this is unlocked.",
		"#museum?exhibit=999":                  "There is no exhibit 999: this is 1.",
		"#policies?policy=unlocked%2BNOPE":     "There is no policy unlocked+NOPE: this is unlocked.",
		"#explore?scenario=two-writers-same":   "",
		"#policies?policy=unlocked!INODE_LOCK": "There is no policy unlocked!INODE_LOCK: this is unlocked.",
		"#museum?exhibit=41":                   "",
		"#measured":                            "",
	} {
		b.open("#measured")
		b.open(hash)
		page, _, _ := strings.Cut(hash[1:], "?")
		b.until(fmt.Sprintf("!document.querySelector('#page-%s').hidden", strings.Replace(page, "nosuch", "levels", 1)))
		if text := b.text("#unknown"); !strings.HasPrefix(text, want) || want == "" && text != "" {
			t.Errorf("%s says %q, want %q", hash, text, want)
		}
		var hidden bool
		b.eval("document.querySelector('#unknown').hidden", &hidden)
		if hidden != (want == "") {
			t.Errorf("%s: the line is hidden: %v", hash, hidden)
		}
	}
	b.open("#museum?exhibit=999")
	b.until("!document.querySelector('#page-museum').hidden")
	b.shot("unknown")
	if len(b.errors) > 0 {
		t.Errorf("errors on the page:\n%s", strings.Join(b.errors, "\n"))
	}
}
