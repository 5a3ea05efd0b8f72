package fio

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"btrlab/internal/testing/need"
)

// terseJob is the same for both programs.
const terseJob = "--name=j --rw=write --bs=4k --size=1m --ioengine=libaio --iodepth=4 --description=words"

// fields are those of the terse line of a job of ours.
func terseFields(t *testing.T) []string {
	t.Helper()
	jf, _, err := Syntax{}.ParseArgs(strings.Fields(terseJob))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	text.WriteString("[j]\n")
	for _, o := range jf.Jobs[0].Options {
		text.WriteString(o.Key + "=" + o.Value + "\n")
	}
	var line strings.Builder
	if err := runJob(t, text.String(), &memory{cost: 100 * time.Microsecond}).WriteTerse(&line); err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(line.String(), "\n"), ";")
}

// The terse line has fio's 121 fields of version 3, and the description after them: of the two
// directions 41 each, from the fifth on.
func TestTerse(t *testing.T) {
	f := terseFields(t)
	if len(f) != 122 || f[121] != "words" {
		t.Fatalf("have %d fields, want 121 and the description: %q", len(f), f)
	}
	const write = 5 + 41
	for at, want := range map[int]string{0: "3", 2: "j", 3: "0", 4: "0", 5: "0", write: "1024", write + 1: "40000", write + 2: "10000", write + 3: "25",
		write + 4: "100", write + 5: "100", write + 6: "100.000000", // slat: the call takes 100 us
		write + 9: "300", write + 12: "1.000000%=199", write + 31: "0%=0", write + 33: "400", 94: "98.8%"} {
		if f[at] != want {
			t.Errorf("field %d: have %q want %q", at, f[at], want)
		}
	}
}

// The judge is fio: each of its fields has the form that it has here, those of disks apart.
func TestTerseBesideFio(t *testing.T) {
	need.All(t, "fio")
	c := exec.Command("fio", append(strings.Fields(terseJob), "--output-format=terse")...)
	c.Dir = t.TempDir()
	b, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	theirs := strings.Split(strings.TrimSpace(string(b)), ";")
	ours := terseFields(t)
	const disks, disk = 121, 9
	if n := len(theirs) - len(ours); n%disk != 0 || n < 0 {
		t.Fatalf("have %d fields, fio %d", len(ours), len(theirs))
	}
	theirs = append(theirs[:disks:disks], theirs[len(theirs)-1])
	form := func(s string) string { return regexp.MustCompile(`\d+`).ReplaceAllString(s, "0") }
	for i := range ours {
		if i != 1 && form(ours[i]) != form(theirs[i]) {
			t.Errorf("field %d: have %q, fio %q", i, ours[i], theirs[i])
		}
		if same := map[int]bool{0: true, 2: true, 5: true, 46: true, 121: true}; same[i] && ours[i] != theirs[i] {
			t.Errorf("field %d: have %q, fio %q", i, ours[i], theirs[i])
		}
	}
}
