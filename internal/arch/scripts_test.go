package arch

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// byHand are the scripts that run on other systems than Linux. The others need Linux anyway.
var byHand = []string{"cmd/btrlab/dist.sh", "internal/judge/kernels/fetch.sh", "internal/judge/park/reproducer/files/run.sh", "notebooks/run.sh",
	"internal/study/handout/autograder/run_autograder", "internal/study/handout/autograder/setup.sh",
	"testdata/cluster/slurm.sh", "testdata/cluster/parallel.sh"}

// tooNew are words that the bash 3.2 of macOS does not know, and options that its tools have not.
var tooNew = map[string]*regexp.Regexp{
	"bash 4":             regexp.MustCompile(`\b(mapfile|readarray|coproc)\b|(declare|local|typeset) -[a-z]*[Agn]|\$\{\w+(\^|,|@[A-Z])|\|&|&>>|;;?&|\[-\d+\]\}|\bshopt -s globstar`),
	"an option of GNU's": regexp.MustCompile(`\bsed -i(\s|$)|\breadlink -f\b|\bgrep -[a-zA-Z]*P|\bxargs -[a-zA-Z]*[dr]\b|\bdate -d\b|\bstat -c\b|\bcp --|\bmktemp --|\bsort -[a-zA-Z]*V|\bbase64 -w`),
}

// TestScripts: the scripts are for the shell that their first line names, down to dash and to the
// bash of macOS, which is 3.2, with the tools of BSD. dash, busybox and bash parse them where they
// are there; no bash 3.2 is asked, so what it lacks is a list.
func TestScripts(t *testing.T) {
	root := filepath.Join("..", "..")
	for _, name := range byHand {
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		for n, line := range strings.Split(string(b), "\n") {
			if code, _, _ := strings.Cut(line, " # "); !strings.HasPrefix(strings.TrimSpace(code), "#") {
				for what, re := range tooNew {
					if at := re.FindString(code); at != "" {
						t.Errorf("%s:%d: %q is %s", name, n+1, at, what)
					}
				}
			}
		}
		shells := [][]string{{"bash", "-n"}}
		if first, _, _ := strings.Cut(string(b), "\n"); !strings.Contains(first, "bash") {
			shells = append(shells, []string{"dash", "-n"}, []string{"busybox", "sh", "-n"})
		}
		for _, sh := range shells {
			if _, err := exec.LookPath(sh[0]); err != nil {
				continue
			}
			if out, err := exec.Command(sh[0], append(sh[1:], filepath.Join(root, name))...).CombinedOutput(); err != nil {
				t.Errorf("%s does not parse: %v\n%s", strings.Join(sh, " "), err, out)
			}
		}
	}
}
