package pages_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"btrlab/internal/site/pages"
	"btrlab/internal/testing/need"
)

var shots = flag.String("shots", "", "keep pictures of the pages in this folder, to be looked at")

// tab is a page in a headless Chromium, driven through the pipe of its DevTools protocol: a message
// in JSON, then a zero byte.
type tab struct {
	t       *testing.T
	in      io.Writer
	out     *bufio.Reader
	id      int
	session string
	base    string   // of the site's addresses; nothing else may be asked for
	errors  []string // exceptions and errors on the page's console
	end     *time.Timer
}

// answerIn is how long the browser may think about one question; until waits for a minute at most.
const answerIn = 3 * time.Minute

// browse starts Chromium, or skips the test without one.
func browse(t *testing.T) *tab {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: no browser")
	}
	browser := need.Browser(t)
	hear, in, err := os.Pipe()
	must(t, err)
	out, say, err := os.Pipe()
	must(t, err)
	cmd := exec.Command(browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update",
		"--disable-dev-shm-usage", "--user-data-dir="+t.TempDir(), "--remote-debugging-pipe", "about:blank")
	cmd.ExtraFiles = []*os.File{hear, say} // 3 and 4
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.WaitDelay = 5 * time.Second
	must(t, cmd.Start())
	hear.Close()
	say.Close()
	b := &tab{t: t, in: in, out: bufio.NewReaderSize(out, 1<<20)}
	// then the pipe ends, and with it the test
	b.end = time.AfterFunc(answerIn, func() { cmd.Process.Kill() })
	t.Cleanup(func() {
		b.end.Stop()
		b.send("", "Browser.close", nil)
		cmd.Wait()
		in.Close()
		out.Close()
		if t.Failed() {
			for line := range strings.Lines(stderr.String()) {
				if !strings.Contains(line, "dbus") { // a container has none
					t.Logf("chromium said: %s", line)
				}
			}
		}
	})
	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var session struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &session)
	b.session = session.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Accessibility", "Network"} {
		b.call(domain+".enable", nil, nil)
	}
	return b
}

func (b *tab) send(session, method string, params any) int {
	b.id++
	m := map[string]any{"id": b.id, "method": method}
	if params != nil {
		m["params"] = params
	}
	if session != "" {
		m["sessionId"] = session
	}
	text, err := json.Marshal(m)
	must(b.t, err)
	_, err = b.in.Write(append(text, 0))
	if err != nil {
		b.t.Logf("%s: %v", method, err)
	}
	return b.id
}

// call asks the browser and reads what it says until the answer has come.
func (b *tab) call(method string, params, answer any) {
	b.t.Helper()
	id := b.send(b.session, method, params)
	b.end.Reset(answerIn)
	defer b.end.Stop()
	for {
		line, err := b.out.ReadBytes(0)
		if err != nil {
			b.t.Fatalf("%s: chromium has ended: %v", method, err)
		}
		var m struct {
			ID     int
			Method string
			Error  *struct{ Message string }
			Result json.RawMessage
			Params json.RawMessage
		}
		must(b.t, json.Unmarshal(bytes.TrimSuffix(line, []byte{0}), &m))
		b.event(m.Method, m.Params)
		if m.ID != id {
			continue
		}
		if m.Error != nil {
			b.t.Fatalf("%s: %s", method, m.Error.Message)
		}
		if answer != nil {
			must(b.t, json.Unmarshal(m.Result, answer))
		}
		return
	}
}

// event keeps what goes wrong on the page.
func (b *tab) event(method string, params json.RawMessage) {
	switch method {
	case "Runtime.exceptionThrown":
		b.errors = append(b.errors, string(params))
	case "Log.entryAdded":
		if strings.Contains(string(params), `"level":"error"`) {
			b.errors = append(b.errors, string(params))
		}
	case "Network.requestWillBeSent":
		var r struct{ Request struct{ URL string } }
		must(b.t, json.Unmarshal(params, &r))
		if !slices.ContainsFunc([]string{"data:", "blob:", b.base}, func(from string) bool { return strings.HasPrefix(r.Request.URL, from) }) {
			b.errors = append(b.errors, "asks the network for "+r.Request.URL)
		}
	}
}

// open goes to an address of the site and waits until it is ready.
func (b *tab) open(hash string) {
	b.t.Helper()
	b.call("Page.navigate", map[string]any{"url": b.base + pages.Page + hash}, nil)
	b.until("document.documentElement.dataset.ready")
}

// shot holds what the window shows now to what every page keeps: at 375 pixels nothing of it lies
// outside the window, and whatever can have the focus has a name. With -shots it keeps pictures.
func (b *tab) shot(name string) {
	b.t.Helper()
	for _, width := range []int{1200, 375} {
		for _, scheme := range []string{"light", "dark"} {
			if *shots == "" && (width != 375 || scheme != "dark") {
				continue
			}
			b.show(width, 1000, scheme)
			if *shots != "" {
				b.picture(filepath.Join(*shots, fmt.Sprintf("%s-%d-%s.png", name, width, scheme)))
			}
		}
	}
	var wide int
	b.eval("document.documentElement.scrollWidth", &wide)
	if wide > 375 {
		b.t.Errorf("%s: the page is %d pixels wide in a window of 375", name, wide)
	}
	var tree struct {
		Nodes []struct {
			Ignored    bool
			Role, Name struct{ Value any }
			Properties []struct {
				Name  string
				Value struct{ Value any }
			}
		}
	}
	b.call("Accessibility.getFullAXTree", nil, &tree)
	named := 0
	for _, n := range tree.Nodes {
		for _, p := range n.Properties {
			if p.Name == "focusable" && p.Value.Value == true && !n.Ignored && n.Role.Value != "RootWebArea" && n.Role.Value != "main" {
				if named++; n.Name.Value == "" || n.Name.Value == nil {
					b.t.Errorf("%s: a %v without a name", name, n.Role.Value)
				}
			}
		}
	}
	if named < 7 { // the links to the pages
		b.t.Errorf("%s: only %d elements can have the focus", name, named)
	}
	b.show(1200, 900, "light")
}

// eval runs a script on the page and waits for its promise.
func (b *tab) eval(script string, answer any) {
	b.t.Helper()
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	b.call("Runtime.evaluate", map[string]any{"expression": script, "awaitPromise": true, "returnByValue": true}, &r)
	if r.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", script, r.ExceptionDetails)
	}
	if answer != nil {
		must(b.t, json.Unmarshal(r.Result.Value, answer))
	}
}

// until waits until a condition of the page holds; the page looks at each change of its own. A page
// that does not come to it within a minute never will.
func (b *tab) until(condition string) {
	b.t.Helper()
	var held bool
	b.eval(fmt.Sprintf(`new Promise(done => {
		const holds = () => { try { return %s } catch { return false } };
		if (holds()) return done(true);
		setTimeout(() => done(false), 60000);
		new MutationObserver((_, o) => { if (holds()) { o.disconnect(); done(true); } }).observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
	})`, condition), &held)
	if !held {
		b.t.Fatalf("this never holds: %s\nthe page says: %s\n%s", condition, b.text(".page:not([hidden])"), strings.Join(b.errors, "\n"))
	}
}

// text is the text of an element.
func (b *tab) text(selector string) (s string) {
	b.t.Helper()
	b.eval(fmt.Sprintf("document.querySelector(%q).textContent", selector), &s)
	return s
}

// press presses keys: letters and digits as they are, others by the names of the DOM, such as Tab
// and Enter.
func (b *tab) press(keys ...string) {
	b.t.Helper()
	codes := map[string]int{"Tab": 9, "Enter": 13, " ": 32, "ArrowDown": 40, "ArrowUp": 38, "End": 35}
	for _, k := range keys {
		p := map[string]any{"type": "keyDown", "key": k}
		switch {
		case k == "Enter":
			p["text"] = "\r"
		case len(k) == 1:
			p["text"] = k
		}
		if n, ok := codes[k]; ok {
			p["windowsVirtualKeyCode"] = n
		}
		if len(k) == 1 && k[0] >= '0' && k[0] <= '9' {
			p["code"] = "Digit" + k
		}
		b.call("Input.dispatchKeyEvent", p, nil)
		p["type"] = "keyUp"
		delete(p, "text")
		b.call("Input.dispatchKeyEvent", p, nil)
	}
}

// tabTo presses Tab until the element has the focus.
func (b *tab) tabTo(selector string) {
	b.t.Helper()
	for range 200 {
		var on bool
		b.eval(fmt.Sprintf("document.activeElement === document.querySelector(%q)", selector), &on)
		if on {
			return
		}
		b.press("Tab")
	}
	b.t.Fatalf("Tab does not reach %s", selector)
}

// show sets the size and the colours of the window.
func (b *tab) show(width, height int, scheme string) {
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// picture keeps a picture of the window.
func (b *tab) picture(name string) {
	b.t.Helper()
	var p struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": false}, &p)
	png, err := base64.StdEncoding.DecodeString(p.Data)
	must(b.t, err)
	must(b.t, os.WriteFile(name, png, 0o644))
}
