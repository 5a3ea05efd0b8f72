package fio

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Program is what fio's words on a command line ask of the program itself.
type Program struct {
	Format string // normal, json, json+ or terse; empty: normal
	Output string // file that the result goes to; empty: standard output
}

// Formats are the values of output-format.
var Formats = []string{"normal", "terse", "json", "json+"}

// quiet are options of fio's command line that change nothing of a result here, with whether they
// need a value.
var quiet = map[string]bool{"eta": true, "eta-newline": true, "eta-interval": true, "alloc-size": true, "max-jobs": true, "warnings-fatal": false}

// ParseArgs reads jobs from words as fio's command line has them: name=X begins a job, what comes
// before the first name or after name=global is for all that follow. A word begins with one or two
// dashes; its value follows "=" or is the next word. Models fio init.c:parse_cmd_line().
func (x Syntax) ParseArgs(words []string) (*JobFile, Program, error) {
	const where = "command line"
	p := newParser(x, where)
	prog := Program{}
	for i := 0; i < len(words); i++ {
		word := strings.TrimPrefix(strings.TrimPrefix(words[i], "-"), "-")
		if word == words[i] || word == "" {
			return nil, prog, fmt.Errorf("%q is no option, want fio's words such as --name=job --rw=randwrite", words[i])
		}
		key, val, has := strings.Cut(word, "=")
		if !has && i+1 < len(words) && !strings.HasPrefix(words[i+1], "-") {
			i++
			val, has = words[i], true
		}
		if mine, err := prog.take(key, val, has); mine || err != nil {
			if err != nil {
				return nil, prog, fmt.Errorf("--%s: %w", key, err)
			}
			continue
		}
		if key == "name" {
			if !has || val == "" {
				return nil, prog, errors.New("--name needs a value")
			}
			p.section(val, 0)
			continue
		}
		if err := p.option(where, key, val, has); err != nil {
			return nil, prog, fmt.Errorf("--%s: %w", word, err)
		}
	}
	jf, err := p.jobs(errors.New("no job: want --name=JOB, which begins one"), func(*Job) string { return where })
	return jf, prog, err
}

// take takes an option of the program.
func (g *Program) take(key, val string, has bool) (mine bool, err error) {
	switch needs, isQuiet := quiet[key]; {
	case isQuiet && needs && !has:
		return true, errors.New("want a value")
	case isQuiet:
		return true, nil
	case key == "minimal":
		g.Format = "terse"
		return true, nil
	case key == "output":
		g.Output = val
		return true, nil
	case key == "output-format":
		if g.Format = val; !slices.Contains(Formats, val) {
			return true, wantError(strings.Join(Formats, ", "))
		}
		return true, nil
	case key == "terse-version":
		if val != "3" {
			return true, wantError("3, the version that is written")
		}
		return true, nil
	}
	return false, nil
}
