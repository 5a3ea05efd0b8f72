package fio

import (
	"strings"
	"testing"
)

// The words of fio's command line make the jobs that they make there.
func TestParseArgs(t *testing.T) {
	parse := func(line string) (*JobFile, Program, error) { return Syntax{}.ParseArgs(strings.Fields(line)) }
	jf, prog, err := parse("--bs=8k --name=a --rw=randread --size=1m -name=b --rw write --direct 1 --group_reporting --output-format=terse --output o --eta=never")
	if err != nil {
		t.Fatal(err)
	}
	a, b := jf.Jobs[0], jf.Jobs[1]
	if len(jf.Jobs) != 2 || a.Name != "a" || b.Name != "b" || a.RW != "randread" || b.RW != "write" || !b.Direct || a.Direct || !b.GroupReporting || b.Size != 0 || a.Size != 1<<20 {
		t.Errorf("have %+v\n%+v", a, b)
	}
	if a.BS[0][0].Size != 8192 || b.BS[1][0].Size != 8192 || len(jf.Global) != 1 {
		t.Errorf("words before the first name are not for all: %v, %v, %v", a.BS, b.BS, jf.Global)
	}
	if prog != (Program{Format: "terse", Output: "o"}) {
		t.Errorf("have %+v", prog)
	}
	if jf, _, err = parse("--name=global --bs=1k --name=x --name=global --bs=2k --name=y --ioengine=posixaio"); err != nil || jf.Jobs[0].BS[0][0].Size != 1024 || jf.Jobs[1].BS[0][0].Size != 2048 {
		t.Errorf("name=global: %v, %v", jf, err)
	}
	if jf.Jobs[1].Engine != PSync || len(jf.Notes) != 1 || !strings.HasPrefix(jf.Notes[0], "command line: ioengine=posixaio is done as psync: ") {
		t.Errorf("posixaio: %v, %q", jf.Jobs[1].Engine, jf.Notes)
	}
	for line, want := range map[string]string{
		"--bs=4k": "no job: want --name=JOB", "--name=x --frob=1": `--frob=1: unknown option "frob"`, "--name=x job.fio": `"job.fio" is no option`, "--name": "--name needs a value",
		"--name=x --output-format=xml": "--output-format: want normal, terse, json, json+", "job.fio --name=x": `"job.fio" is no option`, "--name=x --rw=up": "--rw=up: bad value for rw",
		"--name=x --nowait": "command line: job x: nowait is for", "--name=x --terse-version=5": "want 3",
	} {
		if _, _, err := parse(line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: have %v want %s", line, err, want)
		}
	}
}
