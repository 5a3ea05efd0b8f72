package scenario

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"btrlab/internal/judge/oracle"
	"btrlab/internal/policy"
	"btrlab/internal/prose"
	"btrlab/internal/sched/explore"
)

// What a scenario in a text may have. More could not be searched.
const (
	maxText  = 64 << 10 // bytes
	maxTasks = 8
	maxOps   = 24
	maxBytes = 16 << 20 // of a file, and the largest offset
)

// TextExample is a scenario in the language that Parse reads.
const TextExample = `# Two writers and a task that writes and then cuts the file below both.
about three writers inside EOF, of which the third cuts the file
file --size 16K
cached --offset 0 --length 16K
switch i_rwsem dio_wait range_lock
rule --write request --read page --sizes with
preemptions 2

task writer A
  write --offset 4K --length 4K

task writer B
  write --offset 8K --length 4K

task writer C
  write --offset 12K --length 4K
  truncate --size 2K
`

// A TextError is a line of a scenario's text that is not in the language.
type TextError struct {
	File string
	Line int // from 1; 0 is the text as a whole
	Have string
	Want string
}

func (e *TextError) Error() string {
	at := e.File
	if e.Line > 0 {
		at += fmt.Sprintf(":%d", e.Line)
	}
	return fmt.Sprintf("%s: have %s, want %s", at, e.Have, e.Want)
}

// field is a --name of a line. to points at an int64, an int, a bool or a string; a func(string)
// error reads a word of a list.
type field struct {
	name string
	to   any
	need bool
}

// set reads a value. It returns what is wanted, empty if value is that.
func (f *field) set(value string) string {
	switch p := f.to.(type) {
	case *int64:
		n, ok := bytesOf(value)
		if !ok {
			return fmt.Sprintf("--%s and bytes from 0 to 16M: 8192, or 8K", f.name)
		}
		*p = n
	case *int:
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > 1_000_000 {
			return fmt.Sprintf("--%s and a number from 1 to 1000000", f.name)
		}
		*p = n
	case *string:
		*p = value
	case func(string) error:
		if err := p(value); err != nil {
			return err.Error()
		}
	}
	return ""
}

// text is the field as a line has it, empty if it has its zero value and need not be there.
func (f *field) text() string {
	switch p := f.to.(type) {
	case *int64:
		if *p != 0 || f.need {
			return fmt.Sprintf(" --%s %s", f.name, oracle.Offset(*p))
		}
	case *int:
		if *p != 0 {
			return fmt.Sprintf(" --%s %d", f.name, *p)
		}
	case *bool:
		if *p {
			return " --" + f.name
		}
	case *string:
		if *p != "" {
			return fmt.Sprintf(" --%s %s", f.name, *p)
		}
	}
	return ""
}

// bytesOf reads a number of bytes with K or M after it or not.
func bytesOf(s string) (int64, bool) {
	unit := int64(1)
	if n, ok := strings.CutSuffix(s, "K"); ok {
		s, unit = n, 1<<10
	} else if n, ok := strings.CutSuffix(s, "M"); ok {
		s, unit = n, 1<<20
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n * unit, err == nil && n >= 0 && n <= maxBytes/unit
}

func fieldNames(l []field) string {
	var names []string
	for _, f := range l {
		names = append(names, "--"+f.name)
	}
	if len(names) == 0 {
		return "nothing more"
	}
	return strings.Join(names, ", ")
}

// setFields reads the fields of a line after its first word. It returns what is wanted, empty if
// all is.
func setFields(words []string, l []field) string {
	var seen []string
	for i := 0; i < len(words); i++ {
		name, ok := strings.CutPrefix(words[i], "--")
		k := slices.IndexFunc(l, func(f field) bool { return f.name == name })
		if !ok || k < 0 {
			return fmt.Sprintf("for %q some of: %s", words[i], fieldNames(l))
		}
		if slices.Contains(seen, name) {
			return "--" + name + " once"
		}
		seen = append(seen, name)
		if b, ok := l[k].to.(*bool); ok {
			*b = true
			continue
		}
		if i++; i == len(words) {
			return "a value after --" + name
		}
		if want := l[k].set(words[i]); want != "" {
			return want
		}
	}
	for _, f := range l {
		if f.need && !slices.Contains(seen, f.name) {
			return "--" + f.name + " as well"
		}
	}
	return ""
}

// fields are those of a line with the operation.
func (o *Op) fields() []field {
	is := func(k ...OpKind) bool { return slices.Contains(k, o.Kind) }
	var l []field
	add := func(name string, to any, need bool) { l = append(l, field{name, to, need}) }
	if is(OpRename, OpLink, OpUnlink) {
		add("from", &o.From, true)
		if !is(OpUnlink) {
			add("to", &o.To, true)
		}
		return l
	}
	if is(OpTruncate) {
		add("size", &o.Off, true)
	}
	if is(OpReflink) {
		add("source", &o.Source, true)
	}
	if is(OpWrite, OpRead, OpPunch, OpFallocate, OpMap, OpReflink) {
		add("offset", &o.Off, !o.Append)
	}
	if is(OpWrite, OpRead, OpPunch, OpFallocate, OpMap, OpReflink, OpLimit) {
		add("length", &o.N, true)
	}
	if is(OpChmod, OpSetxattr) {
		add("value", &o.Value, true)
	}
	if is(OpWrite, OpRead) {
		add("direct", &o.Direct, false)
	}
	if is(OpWrite) {
		add("append", &o.Append, false)
		add("dsync", &o.DSync, false)
		add("nowait", &o.Nowait, false)
		add("sure", &o.Sure, false)
		add("queued", &o.Queued, false)
		add("short", &o.Short, false)
		add("mapped", &o.Mapped, false)
		add("map-offset", &o.MapOff, false)
	}
	if is(OpWrite, OpTruncate, OpPunch, OpFallocate, OpFsync, OpFlush, OpSync, OpReflink) {
		add("fails", &o.Fails, false)
	}
	if is(OpWrite, OpRead, OpFsync) {
		add("ring", &o.Ring, false)
		add("async", &o.Async, false)
	}
	if !is(OpSync, OpDrop, OpSnapshot, OpLimit) {
		add("second", &o.Second, false)
	}
	return l
}

// Text is the operation as a line of a scenario's text.
func (o Op) Text() string {
	var b strings.Builder
	b.WriteString(o.Kind.String())
	for _, f := range o.fields() {
		b.WriteString(f.text())
	}
	return b.String()
}

// parseOp reads a line with an operation. want is empty if it is one.
func parseOp(line string) (o Op, want string) {
	words := strings.Fields(line)
	k := slices.Index(opNames[:], words[0])
	if k < 0 {
		want = "an operation, one of " + strings.Join(opNames[:], ", ")
		if n := prose.Nearest(words[0], opNames[:]); n != "" {
			want = fmt.Sprintf("an operation (did you mean %q?)", n)
		}
		return o, want
	}
	o.Kind = OpKind(k)
	o.Append = o.Kind == OpWrite && slices.Contains(words, "--append") // has no offset of its own
	if want := setFields(words[1:], o.fields()); want != "" {
		return o, want
	}
	switch {
	case o.Kind == OpLimit:
	case o.N < 1 && slices.ContainsFunc(o.fields(), func(f field) bool { return f.name == "length" }):
		return o, "--length of a byte or more"
	case o.Kind == OpChmod:
		if n, err := strconv.ParseUint(o.Value, 8, 32); err != nil || n > 0o7777 {
			return o, "--value and permissions in octal: 640"
		}
	case o.Queued && !o.Direct:
		return o, "--direct with --queued"
	case o.Async && o.Ring == 0:
		return o, "--ring with --async"
	}
	for _, p := range []string{o.From, o.To} {
		if p != "" && !strings.HasPrefix(p, "/") {
			return o, "names that begin with /: the file is /file, the second one is /second"
		}
	}
	return o, ""
}

// fields are those of the line that begins with "file".
func (f *File) fields() []field {
	return []field{{"size", &f.Size, true}, {"at", &f.At, false}, {"nocow", &f.Nocow, false}, {"prealloc", &f.Prealloc, false},
		{"unwritten", &f.Unwritten, false}, {"compressed", &f.Compressed, false}, {"extent", &f.Extent, false}, {"privileged", &f.Privileged, false}}
}

var sizeNames = []string{"off", "apart", "with"}

// ruleFields are those of the line that begins with "rule".
func ruleFields(r *oracle.Rule) []field {
	contract := func(to *oracle.Contract) func(string) error {
		return func(s string) (err error) {
			if *to, err = oracle.ParseContract(s); err != nil {
				err = fmt.Errorf("byte, page, batch, extent or request")
			}
			return err
		}
	}
	return []field{{"write", contract(&r.Write), true}, {"read", contract(&r.Read), true}, {"sizes", func(s string) error {
		i := slices.Index(sizeNames, s)
		if i < 0 {
			return fmt.Errorf("--sizes and one of %s", strings.Join(sizeNames, ", "))
		}
		r.Sizes = oracle.Sizes(i)
		return nil
	}, true}}
}

// Text is the scenario in the language that Parse reads.
func (s *Scenario) Text() string {
	var b strings.Builder
	line := func(first, rest string) { fmt.Fprintf(&b, "%s %s\n", first, strings.TrimSpace(rest)) }
	some := func(first, rest string) {
		if rest != "" {
			line(first, rest)
		}
	}
	number := func(first string, n int64) {
		if n != 0 {
			line(first, oracle.Offset(n))
		}
	}
	is := func(word string, on bool) {
		if on {
			b.WriteString(word + "\n")
		}
	}
	line("name", s.Name)
	some("about", s.About)
	some("goal", s.Goal)
	file := ""
	for _, f := range s.File.fields() {
		file += f.text()
	}
	line("file", file)
	for _, r := range s.File.Cached {
		line("cached", fmt.Sprintf("--offset %s --length %s", oracle.Offset(r.Lo), oracle.Offset(r.Hi-r.Lo)))
	}
	for _, r := range s.File.Dirty {
		line("dirty", fmt.Sprintf("--offset %s --length %s", oracle.Offset(r.Lo), oracle.Offset(r.Hi-r.Lo)))
	}
	number("second", s.Second)
	for _, o := range s.Before {
		line("before", o.Text())
	}
	some("profile", s.Profile)
	number("fill-to", s.FillTo)
	number("quota", int64(s.Quota))
	number("dirty-limit", s.DirtyLimit)
	some("switch", strings.Join(s.Switch, " "))
	line("rule", fmt.Sprintf("--write %v --read %v --sizes %s", s.Rule.Write, s.Rule.Read, sizeNames[s.Rule.Sizes]))
	if s.Preemptions != 0 {
		line("preemptions", fmt.Sprint(s.Preemptions))
	}
	some("method", string(s.Method))
	is("prove", s.Prove)
	some("too-many", strings.Join(s.TooMany, " "))
	is("deep", s.Deep)
	is("by-log", s.ByLog)
	if s.MaxSteps != 0 {
		line("max-steps", fmt.Sprint(s.MaxSteps))
	}
	some("policies", strings.Join(s.Policies, " "))
	for _, t := range s.Tasks {
		fmt.Fprintf(&b, "\ntask %s\n", t.Name)
		for _, o := range t.Ops {
			b.WriteString("  " + o.Text() + "\n")
		}
	}
	return b.String()
}

// reader reads a scenario's text.
type reader struct {
	s     *Scenario
	seen  []string // lines that may come once
	named int      // the task that changes names, from 1
	ops   int
}

// Parse reads a scenario from a text: a line each for the file, what is in memory, the switch
// points and the rule; then "task NAME", and below it the task's operations, as btrlab sh has them
// without the name of the file. Sizes are bytes, or have K or M after them; a line that begins with
// # is a comment. Without a line "name" the scenario has the name of the file, without "switch"
// tasks are switched everywhere, and without "rule" writes are whole, reads are by page, and sizes
// go with the writes. An error is a *TextError.
func Parse(file string, text []byte) (*Scenario, error) {
	whole := func(have, want string) (*Scenario, error) { return nil, &TextError{file, 0, have, want} }
	if len(text) > maxText {
		return whole(prose.Count(len(text), "byte"), prose.Count(maxText, "byte")+" at most")
	}
	base := filepath.Base(file)
	r := &reader{s: &Scenario{Name: strings.TrimSuffix(base, filepath.Ext(base)), Rule: calls}}
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.Join(strings.Fields(line), " ")
		if line == "" || line[0] == '#' {
			continue
		}
		if want := r.line(line); want != "" {
			return nil, &TextError{file, i + 1, strconv.Quote(line), want}
		}
	}
	s := r.s
	if !slices.Contains(r.seen, "file") {
		return whole("no file", "a line that begins with file: file --size 16K")
	}
	if len(s.Tasks) == 0 {
		return whole("no task", "a line \"task NAME\", and its operations below it")
	}
	for _, t := range s.Tasks {
		if len(t.Ops) == 0 {
			return whole("task "+t.Name+" without an operation", "a line below it: write --offset 0 --length 4K")
		}
		for i, left := 0, 0; i < len(t.Ops); i++ {
			switch n := t.Ops[i].Ring; {
			case left > 0 && n != left, n > len(t.Ops)-i:
				return whole(fmt.Sprintf("task %s, operation %d with --ring %d", t.Name, i+1, n),
					"a submission of N requests that have --ring N, N-1 and so on to 1")
			default:
				left = max(n-1, 0)
			}
		}
	}
	if f := &s.File; f.Unwritten > 0 && f.Size > 0 {
		return whole("a file with --unwritten and a size", "--size 0 with --unwritten")
	} else if f.At%4096 != 0 {
		return whole(fmt.Sprintf("a file with --at %d", f.At), "whole pages of 4096 bytes")
	} else {
		end := max(f.Size, f.Prealloc, f.Unwritten)
		for _, c := range slices.Concat(f.Cached, f.Dirty) {
			if c.Hi > (end+4095)&^4095 {
				return whole(fmt.Sprintf("pages in memory up to %s", oracle.Offset(c.Hi)), "cached and dirty inside the file")
			}
		}
	}
	return s, nil
}

// line reads a line. It returns what is wanted, empty if the line is that.
func (r *reader) line(line string) (want string) {
	s := r.s
	first, rest, _ := strings.Cut(line, " ")
	if first == "task" {
		switch {
		case rest == "" || slices.ContainsFunc(s.Tasks, func(t Task) bool { return t.Name == rest }):
			return "task and a name that no other task has"
		case len(s.Tasks) == maxTasks:
			return prose.Count(maxTasks, "task") + " at most"
		}
		s.Tasks = append(s.Tasks, Task{Name: rest})
		return ""
	}
	if len(s.Tasks) == 0 {
		return r.declare(first, rest)
	}
	o, want := parseOp(line)
	switch {
	case want != "":
		return want
	case r.ops == maxOps:
		return prose.Count(maxOps, "operation") + " at most, of all tasks"
	case (o.Second || o.Kind == OpReflink) && s.Second == 0:
		return "a line \"second SIZE\" before the tasks: there is no second file"
	case o.Kind == OpLimit && s.Quota == 0:
		return "a line \"quota SIZE\" before the tasks: there is no quota"
	case slices.Contains([]OpKind{OpRename, OpLink, OpUnlink}, o.Kind):
		if r.named > 0 && r.named != len(s.Tasks) {
			return "all changes of names in one task, so that their order is known"
		}
		r.named = len(s.Tasks)
	}
	r.ops++
	t := &s.Tasks[len(s.Tasks)-1]
	t.Ops = append(t.Ops, o)
	return ""
}

// declared are the first words of the lines before the tasks.
var declared = []string{"name", "about", "goal", "file", "cached", "dirty", "second", "before", "profile", "fill-to", "quota", "dirty-limit", "switch", "rule",
	"preemptions", "method", "prove", "too-many", "deep", "by-log", "max-steps", "policies"}

// mayDeclare says what is wanted instead of first, if it may not begin a declaration here.
func (r *reader) mayDeclare(first string) (want string) {
	if slices.Contains(opNames[:], first) {
		return "operations below a line \"task NAME\""
	}
	if !slices.Contains(declared, first) {
		if n := prose.Nearest(first, declared); n != "" {
			return fmt.Sprintf("another first word (did you mean %q?)", n)
		}
		return "task, or one of " + strings.Join(declared, ", ")
	}
	if many := []string{"cached", "dirty", "before"}; !slices.Contains(many, first) {
		if slices.Contains(r.seen, first) {
			return first + " once"
		}
		r.seen = append(r.seen, first)
	}
	return ""
}

// lockClasses says what is wanted instead of the words, if they are no classes of locks.
func lockClasses(words []string) (want string) {
	for _, c := range words {
		if !slices.Contains(Classes(), c) {
			if near := prose.Nearest(c, Classes()); near != "" {
				return fmt.Sprintf("another lock class than %q (did you mean %q?)", c, near)
			}
			return fmt.Sprintf("another lock class than %q, one of %s", c, strings.Join(Classes(), ", "))
		}
	}
	if len(words) == 0 {
		return "switch and lock classes, or no such line: then tasks are switched everywhere"
	}
	return ""
}

// choose reads the rest of a line that is one of a few words.
func (s *Scenario) choose(first, rest string) (want string) {
	words := profiles
	if first == "method" {
		words = []string{string(explore.Bound), string(explore.DPOR), string(explore.State), string(explore.Naive)}
		s.Method = explore.Method(rest)
	} else {
		s.Profile = rest
	}
	if !slices.Contains(words, rest) {
		return first + " and one of " + strings.Join(words, ", ")
	}
	return ""
}

// declare reads a line before the first task.
func (r *reader) declare(first, rest string) (want string) {
	s, words := r.s, strings.Fields(rest)
	if want := r.mayDeclare(first); want != "" {
		return want
	}
	switch first {
	case "name":
		if s.Name = rest; len(words) != 1 || prose.ShellWord(rest) != rest || strings.ContainsAny(rest, "/=") {
			return "name and a word that a command line can have"
		}
	case "about", "goal":
		if rest == "" {
			return first + " and a sentence"
		}
		*map[string]*string{"about": &s.About, "goal": &s.Goal}[first] = rest
	case "file":
		return setFields(words, s.File.fields())
	case "cached", "dirty":
		var at, n int64
		if want := setFields(words, []field{{"offset", &at, true}, {"length", &n, true}}); want != "" {
			return want
		}
		to := map[string]*[]oracle.Range{"cached": &s.File.Cached, "dirty": &s.File.Dirty}[first]
		*to = append(*to, oracle.Range{Lo: at, Hi: at + n})
	case "before":
		if rest == "" {
			return "before and a rename: before rename --from /file --to /other"
		}
		o, want := parseOp(rest)
		if want == "" && o.Kind != OpRename {
			want = "before and a rename"
		}
		s.Before = append(s.Before, o)
		return want
	case "second", "fill-to", "quota", "dirty-limit":
		n, ok := bytesOf(rest)
		if !ok || n == 0 {
			return first + " and bytes from 1 to 16M: 8192, or 8K"
		}
		if first == "quota" {
			s.Quota = uint64(n)
		} else {
			*map[string]*int64{"second": &s.Second, "fill-to": &s.FillTo, "dirty-limit": &s.DirtyLimit}[first] = n
		}
	case "switch":
		s.Switch = words
		return lockClasses(words)
	case "rule":
		return setFields(words, ruleFields(&s.Rule))
	case "preemptions", "max-steps":
		n, err := strconv.Atoi(rest)
		if err != nil || n < 1 || n > 1_000_000 {
			return first + " and a number from 1 to 1000000"
		}
		*map[string]*int{"preemptions": &s.Preemptions, "max-steps": &s.MaxSteps}[first] = n
	case "method", "profile":
		return s.choose(first, rest)
	case "prove", "deep", "by-log":
		if rest != "" {
			return first + " alone"
		}
		*map[string]*bool{"prove": &s.Prove, "deep": &s.Deep, "by-log": &s.ByLog}[first] = true
	case "too-many", "policies":
		for _, w := range words {
			if _, err := policy.Parse(w); err != nil {
				return fmt.Sprintf("other policies: %v", err)
			}
		}
		if len(words) == 0 {
			return first + " and policies"
		}
		*map[string]*[]string{"too-many": &s.TooMany, "policies": &s.Policies}[first] = words
	}
	return ""
}

// ReadFile reads a scenario from a file. An error is a *TextError, or the system's.
func ReadFile(path string) (*Scenario, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxText+1))
	if err != nil {
		return nil, err
	}
	if bytes.IndexByte(text, 0) >= 0 {
		return nil, &TextError{path, 0, "a byte of zero", "text"}
	}
	if len(text) > maxText { // perhaps without an end
		limit := prose.Count(maxText, "byte")
		return nil, &TextError{path, 0, "more than " + limit, limit + " at most"}
	}
	// The names in it are printed on terminals, those of the file's maker as well as one's own.
	for i, line := range strings.Split(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n") {
		if line = strings.ReplaceAll(line, "\t", " "); prose.Escape(line) != line {
			return nil, &TextError{path, i + 1, strconv.Quote(line), "characters that can be printed"}
		}
	}
	s, err := Parse(path, text)
	if err != nil {
		return nil, err
	}
	h := fnv.New64a()
	h.Write(text)
	s.file, s.Image = path, fmt.Sprintf("file %x", h.Sum64()) // no other text's
	return s, nil
}
