package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf16"

	"btrlab/internal/cli/app"
)

// TestAssistants: what the page for teaching assistants says of a student's Go that does not build
// is what the grader says of it.
func TestAssistants(t *testing.T) {
	edit := func(from, to string) func(string) string {
		return func(s string) string {
			if !strings.Contains(s, from) {
				t.Fatalf("the starter has no %q", from)
			}
			return strings.Replace(s, from, to, 1)
		}
	}
	const imports = `import "btrlab/internal/policy"`
	edits := map[string]func(string) string{
		"a brace too many":             func(s string) string { return s + "}\n" },
		"`func Step` for `func Steps`": edit("func Steps", "func Step"),
		"`import \"os\"`":              edit(imports, imports+"\nimport \"os\""),
		"`policy.SetIsize`":            edit("policy.SetISize", "policy.SetIsize"),
		"a variable of the package":    edit(imports, imports+"\n\nvar turn int"),
		"saved as UTF-16": func(s string) string {
			out := []byte{0xff, 0xfe}
			for _, u := range utf16.Encode([]rune(s)) {
				out = append(out, byte(u), byte(u>>8))
			}
			return string(out)
		},
	}
	starter := readDoc(t, "../../labs/04-truncate-race/setsize.go")
	page := readDoc(t, "../../labs/guide/instructor/assistants.md")
	_, table, _ := strings.Cut(page, "| the row `check` says |")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := regexp.MustCompile(`(?m)^\| ([^|]*) \| ([^|]*) \| [^|]* \|$`).FindAllStringSubmatch(table, -1)
	if len(rows) != len(edits) {
		t.Fatalf("the table has %d rows, want %d", len(rows), len(edits))
	}
	for _, r := range rows {
		change := edits[r[1]]
		if change == nil {
			t.Errorf("no test tries %s", r[1])
			continue
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "setsize.go"), []byte(change(starter)), 0o644); err != nil {
			t.Fatal(err)
		}
		var out, errw bytes.Buffer
		if code := Main([]string{"lab", "grade", "4", "--dir", dir}, strings.NewReader(""), &out, &errw); code != app.ExitFailed {
			t.Errorf("%s: exit %d: %s", r[1], code, &errw)
		}
		says := strings.Join(strings.Fields(out.String()), " ")
		if !strings.Contains(says, "check FAILED 0/100") || !strings.Contains(says, r[2]) {
			t.Errorf("%s: the grader does not say %q:\n%s", r[1], r[2], &out)
		}
	}
}
