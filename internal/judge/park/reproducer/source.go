package reproducer

import (
	"fmt"
	"strings"

	"btrlab/internal/judge/park"
	"btrlab/internal/study/scenario"
)

// source is what repro.c is filled with.
type source struct {
	File  string
	Calls int // of all tasks
	Files []openFile
	Setup string // statements
	Early string // declarations of Setup's memory
	Tasks []taskSource

	uses map[string]bool
}

// openFile is a variable of the program, the file open with the flags.
type openFile struct{ Name, Flags string }

// taskSource is a task as a function: declarations before it, statements before its first gate, and
// those of its calls.
type taskSource struct {
	Number                 int
	Name                   string
	Buffers, Prepare, Body string
}

// Has reports whether a helper of the program is used.
func (x *source) Has(helper string) bool { return x.uses[helper] }

func newSource(s *scenario.Scenario, plan *park.Plan) *source {
	x := &source{File: scenario.FileName, uses: map[string]bool{}}
	var early, setup strings.Builder
	for i := range plan.Setup {
		c := &plan.Setup[i]
		m := x.call(c, fmt.Sprintf("before_%d", i+1))
		early.WriteString(m.declared)
		fmt.Fprintf(&setup, "\t/* %s */\n%s\tmust(%s, \"%s\");\n", about(c), m.prepared, m.call, c.Verb)
	}
	x.Early, x.Setup = early.String(), setup.String()
	for i, calls := range plan.Tasks {
		var buffers, prepare, body strings.Builder
		for k := range calls {
			x.Calls++
			m := x.call(&calls[k], fmt.Sprint(x.Calls))
			buffers.WriteString(m.declared)
			prepare.WriteString(m.prepared)
			fmt.Fprintf(&body, "\tgate();\n\t/* call %d: %s */\n\tdone(%d, %s);\n", x.Calls, s.Tasks[i].Ops[k], x.Calls, m.call)
		}
		body.WriteString("\tgate();\n")
		if prepare.Len() > 0 {
			prepare.WriteString("\n")
		}
		x.Tasks = append(x.Tasks, taskSource{i, inComment(s.Tasks[i].Name), buffers.String(), prepare.String(), body.String()})
	}
	return x
}

// about is a call before the tasks begin, in words.
func about(c *park.Call) string {
	switch c.Verb {
	case "read":
		return fmt.Sprintf("read %d bytes at %d, which are in memory then", c.N, c.Off)
	case "write":
		return fmt.Sprintf("write %d bytes at %d, which are dirty then", c.N, c.Off)
	}
	return "give the file a capability, as setcap does"
}

// made is a call in C: declarations of its memory, statements that fill it, and the expression.
type made struct{ declared, prepared, call string }

// call makes a call. Its memory ends in tag.
func (x *source) call(c *park.Call, tag string) made {
	f := x.file(c.Direct, c.Append)
	switch c.Verb {
	case "write":
		return x.write(c, tag, f)
	case "read":
		x.uses["read"] = true
		return made{buffer("target_"+tag, c.N), fmt.Sprintf("\tmemset(target_%s, 0, sizeof target_%s);\n", tag, tag),
			fmt.Sprintf("read_at(%s, target_%s, %d, %d, %s)", f, tag, c.N, c.Off, flags(c))}
	case "truncate":
		return made{call: fmt.Sprintf("ftruncate(%s, %d)", f, c.Off)}
	case "falloc":
		return made{call: fmt.Sprintf("fallocate(%s, 0, %d, %d)", f, c.Off, c.N)}
	case "punch":
		return made{call: fmt.Sprintf("fallocate(%s, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, %d, %d)", f, c.Off, c.N)}
	case "fsync":
		return made{call: fmt.Sprintf("fsync(%s)", f)}
	case "start":
		return made{call: fmt.Sprintf("sync_file_range(%s, 0, 0, SYNC_FILE_RANGE_WRITE)", f)}
	case "drop":
		return made{call: fmt.Sprintf("syscall(SYS_fadvise64, %s, 0, 0, POSIX_FADV_DONTNEED)", f)}
	case "map":
		return made{fmt.Sprintf("static struct fiemap map_%s;\n", tag),
			fmt.Sprintf("\tmap_%s.fm_start = %d;\n\tmap_%s.fm_length = %d;\n", tag, c.Off, tag, c.N),
			fmt.Sprintf("ioctl(%s, FS_IOC_FIEMAP, &map_%s)", f, tag)}
	case "privilege":
		bytes := strings.ReplaceAll(strings.Trim(fmt.Sprint(scenario.CapNetRaw), "[]"), " ", ", ")
		return made{declared: fmt.Sprintf("static const char capability_%s[] = { %s };\n", tag, bytes),
			call: fmt.Sprintf("fsetxattr(%s, \"security.capability\", capability_%s, sizeof capability_%s, 0)", f, tag, tag)}
	case "sync":
		return made{call: fmt.Sprintf("syncfs(%s)", f)}
	}
	panic("reproducer: no call in C for " + c.Verb)
}

// write makes a write: its source is memory of its own, or a mapping that nobody has touched.
func (x *source) write(c *park.Call, tag, f string) made {
	x.uses["write"] = true
	m := made{call: fmt.Sprintf("write_at(%s, source_%s, %d, %d, %s)", f, tag, c.N, c.Off, flags(c))}
	switch {
	case c.Mapped:
		x.uses["mapped"] = true
		m.prepared = fmt.Sprintf("\tchar *source_%s = mapped(%s, %d, %d);\n", tag, x.file(false, false), c.MapOff, c.N)
	case c.Short != 0:
		x.uses["short"] = true
		m.prepared = fmt.Sprintf("\tchar *source_%s = partly(%d, %d, %d);\n", tag, c.Fill, c.N, c.Short)
	default:
		m.declared = buffer("source_"+tag, c.N)
		m.prepared = fmt.Sprintf("\tmemset(source_%s, %d, sizeof source_%s);\n", tag, c.Fill, tag)
	}
	return m
}

func buffer(name string, n int64) string {
	return fmt.Sprintf("static char %s[%d] __attribute__((aligned(4096)));\n", name, max(n, 1))
}

func flags(c *park.Call) string {
	var list []string
	if c.Nowait {
		list = append(list, "RWF_NOWAIT")
	}
	if c.DSync {
		list = append(list, "RWF_DSYNC")
	}
	if list == nil {
		return "0"
	}
	return strings.Join(list, " | ")
}

// file is the name of the file open for a call.
func (x *source) file(direct, appending bool) string {
	f := openFile{"file", "O_RDWR"}
	if direct {
		f.Name, f.Flags = f.Name+"_direct", f.Flags+" | O_DIRECT"
	}
	if appending {
		f.Name, f.Flags = f.Name+"_append", f.Flags+" | O_APPEND"
	}
	for _, o := range x.Files {
		if o == f {
			return f.Name
		}
	}
	x.Files = append(x.Files, f)
	return f.Name
}
