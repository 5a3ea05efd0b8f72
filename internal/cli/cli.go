// Package cli is the command line: one file per verb. It parses, calls the rooms below and prints;
// nothing imports it, and nothing below it prints.
//
// Exit codes: 0 done, 1 failed or found something, 2 usage, 130 interrupted. An error is one line
// on standard error that names the file, the place and what was expected. The first SIGINT lets the
// operation in hand finish and commits what was done, or lets a search print what it has found so
// far. A second one ends the process, and the image stays at its last commit.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"

	"btrlab/internal/blockdev/dm"
	"btrlab/internal/mount"
	"btrlab/internal/prose"
	"btrlab/internal/sched"
	"btrlab/internal/study/own"
)

// Exit codes.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

var (
	// errFound ends a verb that has printed what it found.
	errFound = errors.New("found something")
	// SIGINT ends a verb with one of these: errInterrupted when it has changed an image, errStopped
	// when it has printed what it found so far, errNothing when it has nothing to print, errUnmade
	// when what it was making is no file system.
	errInterrupted error = interruption("interrupted; what was done before is committed")
	errUnmade      error = interruption("interrupted; the image is not made")
	errStopped     error = interruption("interrupted; the result is what was searched until then")
	errNothing     error = interruption("interrupted; there is no result")
)

// interruption is the message of a verb that SIGINT ended.
type interruption string

func (e interruption) Error() string { return string(e) }

// usageError is an error in the command line: exit 2.
type usageError struct {
	err  error
	path string // of the command, for the hint
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// app is one run of the program.
type app struct {
	in        io.Reader
	out, err  io.Writer
	t         *sched.Task
	open      *openImage    // what verbs work on in sh, else nil
	cache     byteSize      // --cache; 0 is the default
	faults    faults        // --fault
	noReplay  bool          // --no-log-replay
	subvol    subvolFlag    // --subvol
	partition int           // --partition
	devices   []string      // --device
	degraded  bool          // --degraded
	model     string        // --device-model of mount and serve
	live      bool          // the faults may change while the image is open
	flakeys   []*dm.Flakey  // with live, for each device
	stop      atomic.Bool   // SIGINT came
	stopped   chan struct{} // closed when stop becomes true
}

// Main runs the command line args and returns the exit code.
func Main(args []string, in io.Reader, out, errw io.Writer) int {
	return MainWith(nil, args, in, out, errw)
}

// MainWith is Main of a program that has policies of the user's own built in (package own). The
// others are those of --policy-dir.
func MainWith(built []own.Compiled, args []string, in io.Reader, out, errw io.Writer) int {
	if code, yes := mount.Apart(); yes {
		return code
	}
	kept := &keptOutput{w: out}
	if !isTerminal(out) {
		out = kept
	}
	a := &app{in: in, out: out, err: errw, t: sched.NewTask("main"), stopped: make(chan struct{})}
	defer a.watchSignals()()
	err := a.ownPolicies(built, args)
	if err == nil {
		err = a.run(args)
	}
	if kept.err != nil && (err == nil || errors.Is(err, errFound)) {
		err = kept.err
	}
	var usage *usageError
	var stop interruption
	var other exitCode
	switch {
	case errors.As(err, &other):
		return int(other)
	case err == nil:
		return exitOK
	case errors.Is(err, errFound):
		return exitFailed
	case errors.As(err, &stop):
		each(err, func(err error) {
			if !errors.Is(err, stop) {
				complain(errw, oneLine(err))
			}
		})
		fmt.Fprintln(errw, "btrlab:", stop)
		return exitInterrupted
	case errors.As(err, &usage):
		complain(errw, fmt.Sprintf("%s; see '%s --help'", oneLine(err), usage.path))
		return exitUsage
	default:
		each(err, func(err error) { complain(errw, oneLine(err)) })
		return exitFailed
	}
}

// run runs the verb that args name.
func (a *app) run(args []string) error {
	root := a.root()
	root.SetArgs(sizesLast(aliased(args)))
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	return root.Execute()
}

// complain prints an error: one line, which a terminal of less than its width gets wrapped.
func complain(w io.Writer, text string) {
	lines := []string{"btrlab: " + shown(w, text)}
	if isTerminal(w) {
		lines = prose.Hang("btrlab: ", "  ", shown(w, text), terminalWidth(w))
	}
	for _, l := range lines {
		fmt.Fprintln(w, l)
	}
}

func oneLine(err error) string { return strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ") }

// watchSignals sets a.stop on the first SIGINT, SIGTERM or SIGHUP, and ends the process on the
// second. A second SIGHUP does not: both the system and the shell send one.
func (a *app) watchSignals() (undo func()) {
	c := make(chan os.Signal, 2)
	signal.Notify(c, hangup(os.Interrupt, syscall.SIGTERM)...)
	go func() {
		for s := range c {
			switch {
			case !a.stop.Swap(true):
				close(a.stopped)
			case !isHangup(s):
				os.Exit(exitInterrupted)
			}
		}
	}()
	return func() {
		signal.Stop(c)
		close(c)
	}
}

// interrupted returns errInterrupted after SIGINT. Loops over files ask it between two files.
func (a *app) interrupted() error {
	if a.stop.Load() {
		return errInterrupted
	}
	return nil
}

// context ends when parent does or SIGINT comes.
func (a *app) context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	go func() {
		select {
		case <-a.stopped:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// stdin is standard input for a verb's data.
func (a *app) stdin() io.Reader {
	if a.open != nil && a.open.stdin {
		return readFunc(func([]byte) (int, error) { return 0, errors.New("standard input has the verbs, want them in a file") })
	}
	return a.input()
}

// input is standard input; a Read that waits for input ends with errInterrupted when SIGINT comes.
func (a *app) input() io.Reader {
	type chunk struct {
		b   []byte
		err error
	}
	chunks := make(chan chunk)
	go func() {
		for {
			b := make([]byte, 64<<10)
			n, err := a.in.Read(b)
			select {
			case chunks <- chunk{b[:n], err}:
			case <-a.stopped:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	var c chunk
	return readFunc(func(p []byte) (int, error) {
		for len(c.b) == 0 {
			if c.err != nil {
				return 0, c.err
			}
			select {
			case c = <-chunks:
			case <-a.stopped:
				return 0, errInterrupted
			}
		}
		n := copy(p, c.b)
		c.b = c.b[n:]
		return n, nil
	})
}

type readFunc func(p []byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// root is the command with all verbs, and help as wide as a terminal.
func (a *app) root() *cobra.Command {
	root := a.commands()
	setHelp(root)
	return root
}

func (a *app) commands() *cobra.Command {
	root := &cobra.Command{
		Use:   "btrlab",
		Short: "make, read, write, check and measure btrfs images without mounting them",
		Long: `btrlab works on real btrfs images: files, loop devices and disks. No root and no kernel are needed.
An image is named by its path, a file in it as IMAGE:/path. Sizes take the suffixes k, M, G and T (powers of 1024).`,
		Example: `  btrlab mkfs --size 1G disk.img
  btrlab put -r src disk.img:/src
  btrlab compare`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs,
		Version:       programVersion(),
	}
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		err := fmt.Errorf("there is no verb %q", args[0])
		if does := foreignWord(args); does != "" {
			err = fmt.Errorf("there is no verb %q, want %s", args[0], does)
		} else if s := cmd.SuggestionsFor(args[0]); len(s) > 0 {
			err = fmt.Errorf("there is no verb %q (did you mean %q?)", args[0], s[0])
		}
		return &usageError{err, "btrlab"}
	}
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return checkOutputs(cmd) }
	root.SuggestionsMinimumDistance = 2
	root.AddGroup(&cobra.Group{ID: "image", Title: "Images:"}, &cobra.Group{ID: "files", Title: "Files in an image:"},
		&cobra.Group{ID: "measure", Title: "Measure:"}, &cobra.Group{ID: "study", Title: "Study:"})
	a.add(root, "image", a.mkfs(), a.check(), a.info(), a.df(), a.dump(), a.inspect(), a.quota(), a.resize(), a.label(), a.uuid(), a.rescue())
	a.add(root, "files", append(a.fileVerbs(), a.sh(), a.mount(), a.serve())...)
	a.add(root, "measure", a.bench(), a.compare(), a.calibrate(), a.reproduce())
	a.add(root, "study", a.explore(), a.replay(), a.step(), a.museum(), a.policy(), a.crash(), a.conform(), completeLabs(a.lab()), a.practice())
	root.AddCommand(a.man())
	root.InitDefaultCompletionCmd() // for wrapArgs
	a.faultFlags(root)
	policyDirFlags(root)
	a.openFlags(root)
	a.partitionFlags(root)
	a.deviceFlags(root)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return &usageError{flagError(err), cmd.CommandPath()} })
	wrapArgs(root)
	return root
}

// programVersion is the module's version, and of a build in a checkout the commit; the Go that
// built it, and for what.
func programVersion() string {
	b, ok := debug.ReadBuildInfo()
	if !ok {
		return "of unknown origin"
	}
	v, dirty := b.Main.Version, ""
	for _, s := range b.Settings {
		switch {
		case s.Key == "vcs.revision" && (v == "" || v == "(devel)"):
			v = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true" && !strings.HasSuffix(v, "+dirty"):
			dirty = "+dirty"
		}
	}
	return fmt.Sprintf("%s%s %s %s/%s", v, dirty, b.GoVersion, runtime.GOOS, runtime.GOARCH)
}

// fileVerbs are the verbs on files in an image.
func (a *app) fileVerbs() []*cobra.Command {
	return []*cobra.Command{a.ls(), a.tree(), a.du(), a.stat(), a.cat(), a.put(), a.get(), a.mkdir(), a.rm(), a.mv(), a.ln(), a.touch(), a.write(), a.truncate(),
		a.fallocate(), a.chmod(), a.chown(), a.mknod(), a.chattr(), a.lsattr(), a.getxattr(), a.setxattr(), a.removexattr(), a.property(), a.reflink(), a.snapshot(), a.subvolume(), a.send(), a.receive()}
}

// The functions of help templates are cobra's for the whole process, and no lock of it protects
// them: they are added once, before the clients of sh --at make commands, many at a time.
func init() {
	cobra.AddTemplateFunc("fill", func(text string) string { return prose.Fill(text, prose.Width) })
	cobra.AddTemplateFunc("hang", func(name, text string) string {
		return strings.Join(prose.Hang("  "+name+" ", strings.Repeat(" ", len(name)+3), text, prose.Width), "\n")
	})
}

// setHelp makes the help of every verb fit a terminal of 80 columns.
func setHelp(root *cobra.Command) {
	var examples func(cmd *cobra.Command)
	examples = func(cmd *cobra.Command) {
		lines := strings.Split(cmd.Example, "\n")
		for i, l := range lines {
			bare := strings.TrimLeft(l, " ")
			lines[i] = prose.Command(l[:len(l)-len(bare)], bare, prose.Width)
		}
		cmd.Example = strings.Join(lines, "\n")
		for _, c := range cmd.Commands() {
			examples(c)
		}
	}
	examples(root)
	root.SetHelpTemplate(strings.ReplaceAll(root.HelpTemplate(), ". | trimTrailingWhitespaces", "fill ."))
	root.SetUsageTemplate(strings.NewReplacer(
		"FlagUsages |", fmt.Sprintf("FlagUsagesWrapped %d |", prose.Width),
		"  {{rpad .Name .NamePadding }} {{.Short}}", "{{hang (rpad .Name .NamePadding) .Short}}",
	).Replace(root.UsageTemplate()))
}

func (a *app) add(root *cobra.Command, group string, verbs ...*cobra.Command) {
	for _, v := range verbs {
		v.GroupID = group
		v.DisableFlagsInUseLine = false
		root.AddCommand(v)
	}
}

// wrapArgs makes every error about arguments a usage error, and rejects an unknown word after a
// verb that has only subcommands.
func wrapArgs(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		wrapArgs(c)
		if c.HasSubCommands() && !c.Runnable() {
			c.DisableFlagsInUseLine = true
			c.Args = nil // completion's refuses the word by its number
			c.RunE = func(cmd *cobra.Command, given []string) error {
				if len(given) == 0 {
					return cmd.Help()
				}
				var l []string
				for _, sub := range cmd.Commands() {
					l = append(l, sub.Name())
				}
				return usagef(cmd, "there is no verb %q, want one of %s", given[0], strings.Join(l, ", "))
			}
		}
		if args := c.Args; args != nil {
			c.Args = func(cmd *cobra.Command, given []string) error {
				if err := args(cmd, given); err != nil {
					return usagef(cmd, "have %s, want %s", prose.Count(len(given), "argument"), strings.TrimSuffix(cmd.UseLine(), " [flags]"))
				}
				return nil
			}
		}
	}
}

func usagef(cmd *cobra.Command, format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...), cmd.CommandPath()}
}

// printJSON writes v as indented JSON.
func (a *app) printJSON(v any) error {
	if a.open != nil && a.open.json {
		a.open.result = v
		return nil
	}
	e := json.NewEncoder(a.out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

func jsonFlag(cmd *cobra.Command, v *bool) {
	cmd.Flags().BoolVar(v, "json", false, "print the result as JSON")
}
