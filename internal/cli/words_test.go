package cli

import (
	"bytes"
	"strings"
	"testing"

	"btrlab/internal/cli/app"
)

// What people type who know btrfs, debugfs or the shell is pointed at what does it here: one line,
// exit code 2, and the verbs that it names are there.
func TestForeignWords(t *testing.T) {
	a := newCmdline(nil, nil, nil)
	verbs := map[string]bool{}
	for _, c := range a.root().Commands() {
		verbs[c.Name()] = true
	}
	for word, does := range foreignWords {
		if verbs[word] {
			t.Errorf("%q is a verb", word)
		}
		var out, errw bytes.Buffer
		code := Main(append(strings.Fields(word), "x"), strings.NewReader(""), &out, &errw)
		says := "want " + does
		if why, needless := strings.CutPrefix(does, "nothing: "); needless {
			says = "none is needed: " + why
		}
		if code != app.ExitUsage || strings.Count(errw.String(), "\n") != 1 || !strings.Contains(errw.String(), says) {
			t.Errorf("%s: exit code %d, %q", word, code, errw.String())
		}
		first := strings.FieldsFunc(does, func(r rune) bool { return r == ' ' || r == ',' || r == ':' })[0]
		if first != "nothing" && first != "the" && !verbs[first] {
			t.Errorf("%s: there is no verb %q", word, first)
		}
	}
	for typed, want := range map[string]string{"fi sy": "want sh", "fi": "want info", "run job": "want bench", "btrfs": "want one, as btrfs subvolume list", "subvolume snap": "want one of create"} {
		var errw bytes.Buffer
		if Main(strings.Fields(typed), nil, &bytes.Buffer{}, &errw); !strings.Contains(errw.String(), want) {
			t.Errorf("%s: %q, want %q", typed, errw.String(), want)
		}
	}
}

// What is typed first and means the same runs; the words that stand for it are verbs.
func TestAliases(t *testing.T) {
	a := newCmdline(nil, nil, nil)
	verbs := map[string]bool{"--version": true}
	for _, c := range a.root().Commands() {
		verbs[c.Name()] = true
	}
	for _, x := range aliases {
		if verb := strings.Fields(x.verb)[0]; !verbs[verb] || verbs[x.typed] || foreignWords[x.typed] != "" {
			t.Errorf("%q stands for %q: want a verb, and no other meaning", x.typed, x.verb)
		}
	}
	for typed, want := range map[string]string{"fi df x": "df x", "sub list x": "subvolume list x", "su li x": "subvolume li x", "run a.fio --json": "bench a.fio --json",
		"run a": "run a", "fio a.fio --json": "bench a.fio --json", "fio --bs=4k --name=j": "bench -- --bs=4k --name=j", "ls x": "ls x", "df -h x": "df x", "df -h": "df -h", "filesystem resize 1 x": "filesystem resize 1 x", "subvolume snapshot x:/ /y": "snapshot x:/ /y"} {
		if have := strings.Join(aliased(strings.Fields(typed)), " "); have != want {
			t.Errorf("%q: have %q want %q", typed, have, want)
		}
	}
	for typed, want := range map[string]string{"practice --seed x": `bad --seed, have "x" want a number`, "mkfs -x": "there is no flag -x",
		"replay a 1 --out x.PDF": "writes no PDF, want a page (.html)", "compare 9": `seed "009", want 000`, "bench --name=x": "want fio's words after --"} {
		var errw bytes.Buffer
		if code := Main(strings.Fields(typed), nil, &bytes.Buffer{}, &errw); code != app.ExitUsage || !strings.Contains(errw.String(), want) {
			t.Errorf("%s: have %d, %q, want %q", typed, code, errw.String(), want)
		}
	}
}
