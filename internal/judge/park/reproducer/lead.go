package reproducer

import (
	"fmt"
	"strconv"
	"strings"

	"btrlab/internal/errno"
	"btrlab/internal/judge/oracle"
	"btrlab/internal/judge/park"
	"btrlab/internal/study/scenario"
)

// lead is what park.py is filled with, as literals of Python.
type lead struct {
	TaskNames string
	Steps     []string
	Violation string
	Victims   string
	Sleepers  string
	Errors    string
	Size      string
	Bytes     string
}

// stepColumns is how wide the places of a step may be in one line.
const stepColumns = 80

func newLead(s *scenario.Scenario, plan *park.Plan, v string) *lead {
	l := &lead{TaskNames: strs(s.TaskNames()), Violation: v, Sleepers: "[]", Errors: "None", Size: "None", Bytes: "None"}
	for i := range plan.Steps {
		x := &plan.Steps[i]
		places := make([]string, len(x.Names))
		for k, names := range x.Names {
			places[k] = strings.Join(names, " ")
		}
		waits := "False"
		if x.Waits {
			waits = "True"
		}
		where := x.Where()
		if len(x.Merged) > 0 {
			where += ", and has done as well: " + strings.Join(x.Merged, ", ")
		}
		list := strs(places)
		if len(list) > stepColumns {
			list = strings.ReplaceAll(list, `", "`, "\",\n         \"") // a place in a line
		}
		l.Steps = append(l.Steps, fmt.Sprintf("(%d, %s, %s,\n     %s),", x.Task, list, waits, strconv.QuoteToASCII(where)))
	}
	victims := make([]string, len(plan.Victims))
	for i, v := range plan.Victims {
		victims[i] = fmt.Sprintf("(%d, %d)", v.Task, v.Op)
	}
	l.Victims = "[" + strings.Join(victims, ", ") + "]"
	switch v {
	case sleeps:
		l.Sleepers = strs(park.Sleepers)
	case wrong:
		l.Errors = strs(errnos(plan.Engine.Errors))
	case wrongEnd, noneFound:
		l.Errors, l.Size = strs(errnos(plan.Engine.Errors)), fmt.Sprint(s.File.At+plan.Engine.Size)
		l.Bytes = seen(plan.Engine.Bytes, s.File.At)
	}
	return l
}

// strs is a list of texts.
func strs(list []string) string {
	quoted := make([]string, len(list))
	for i, x := range list {
		quoted[i] = strconv.QuoteToASCII(x)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// seen are the bytes of a file, as painted: from, to, and the byte.
func seen(list []oracle.Seen, at int64) string {
	runs := make([]string, len(list))
	for i, x := range list {
		b := []byte{0}
		if x.From != oracle.Foreign {
			oracle.Paint(b, x.From)
		}
		runs[i] = fmt.Sprintf("(%d, %d, %d)", at+x.Lo, at+x.Hi, b[0])
	}
	return "[" + strings.Join(runs, ", ") + "]"
}

// errnos are the names of errors, each of which is in one of the texts. The engine's text of an
// error says more than that.
func errnos(texts []string) []string {
	list := make([]string, len(texts))
	for i, text := range texts {
		if text == "" {
			continue
		}
		list[i] = "another error"
		for name, e := range numbers {
			if strings.Contains(text, e.Error()) {
				list[i] = name
			}
		}
	}
	return list
}

// numbers are the errors that a call of a scenario may have.
var numbers = map[string]errno.Errno{"EAGAIN": errno.EAGAIN, "ENOSPC": errno.ENOSPC, "EDQUOT": errno.EDQUOT, "EIO": errno.EIO, "EFAULT": errno.EFAULT,
	"EINVAL": errno.EINVAL, "EFBIG": errno.EFBIG, "EOPNOTSUPP": errno.EOPNOTSUPP, "EROFS": errno.EROFS}
