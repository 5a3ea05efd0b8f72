// Package cli is the command line. It makes the command with all verbs, which the rooms of this
// folder have: image, serve, measure, study and learn. They parse, call the rooms below and print;
// nothing below them prints. What they share, one run of the program, is package app.
//
// Exit codes: 0 done, 1 failed or found something, 2 usage, or no verdict of a kernel, 130
// interrupted. An error is one line
// on standard error that names the file, the place and what was expected. The first SIGINT lets the
// operation in hand finish and commits what was done, or lets a search print what it has found so
// far. A second one ends the process, and the image stays at its last commit.
package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/cli/image"
	"btrlab/internal/cli/learn"
	"btrlab/internal/cli/measure"
	"btrlab/internal/cli/serve"
	"btrlab/internal/cli/study"
	"btrlab/internal/mount"
	"btrlab/internal/prose"
	"btrlab/internal/study/own"
)

// cmdline is one run of btrlab, and makes its commands.
type cmdline struct{ *app.Run }

func newCmdline(in io.Reader, out, errs io.Writer) cmdline {
	r := app.New(in, out, errs)
	r.Alias = aliased
	return cmdline{r}
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
	if !app.IsTerminal(out) {
		out = kept
	}
	a := newCmdline(in, out, errw)
	defer a.watchSignals()()
	err := a.ownPolicies(built, args)
	if err == nil {
		err = a.run(args)
	}
	if kept.err != nil && (err == nil || errors.Is(err, app.ErrFound)) {
		err = kept.err
	}
	var usage *app.UsageError
	var stop app.Interruption
	var silent *app.NoVerdict
	var other exitCode
	switch {
	case errors.As(err, &other):
		return int(other)
	case err == nil:
		return app.ExitOK
	case errors.Is(err, app.ErrFound):
		return app.ExitFailed
	case errors.As(err, &stop):
		app.Each(err, func(err error) {
			if !errors.Is(err, stop) {
				complain(errw, app.OneLine(err))
			}
		})
		fmt.Fprintln(errw, "btrlab:", stop)
		return app.ExitInterrupted
	case errors.Is(err, app.ErrUncorrectable):
		complain(errw, app.OneLine(err))
		return app.ExitUncorrectable
	case isProgs(aliased(args)): // any error is 1 there
		app.Each(err, func(err error) { fmt.Fprintln(errw, "ERROR:", app.OneLine(err)) })
		return app.ExitFailed
	case errors.As(err, &usage):
		complain(errw, fmt.Sprintf("%s; see '%s --help'", app.OneLine(err), usage.Path))
		return app.ExitUsage
	case errors.As(err, &silent):
		complain(errw, app.OneLine(err))
		return app.ExitUsage
	default:
		app.Each(err, func(err error) { complain(errw, app.OneLine(err)) })
		return app.ExitFailed
	}
}

// run runs the verb that args name.
func (a cmdline) run(args []string) error {
	root := a.root()
	root.SetArgs(image.FiltersLong(image.SizesLast(aliased(args))))
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	return root.Execute()
}

// complain prints an error: one line, which a terminal of less than its width gets wrapped.
func complain(w io.Writer, text string) {
	lines := []string{"btrlab: " + app.Shown(w, text)}
	if app.IsTerminal(w) {
		lines = prose.Hang("btrlab: ", "  ", app.Shown(w, text), app.TerminalWidth(w))
	}
	for _, l := range lines {
		fmt.Fprintln(w, l)
	}
}

// watchSignals ends the run on the first SIGINT, SIGTERM or SIGHUP, and ends the process on the
// second. A second SIGHUP does not: both the system and the shell send one.
func (a cmdline) watchSignals() (undo func()) {
	c := make(chan os.Signal, 2)
	signal.Notify(c, hangup(os.Interrupt, syscall.SIGTERM)...)
	go func() {
		for s := range c {
			if !a.End() && !isHangup(s) {
				os.Exit(app.ExitInterrupted)
			}
		}
	}()
	return func() {
		signal.Stop(c)
		close(c)
	}
}

// root is the command with all verbs, and help as wide as a terminal.
func (a cmdline) root() *cobra.Command {
	root := a.commands()
	app.SetHelp(root)
	return root
}

func (a cmdline) commands() *cobra.Command {
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
		does := foreignWord(args)
		if why, needless := strings.CutPrefix(does, "nothing: "); needless {
			err = fmt.Errorf("there is no verb %q, and none is needed: %s", args[0], why)
		} else if does != "" {
			err = fmt.Errorf("there is no verb %q, want %s", args[0], does)
		} else if args[0] == "btrfs" {
			err = errors.New("btrfs without a command, want one, as btrfs subvolume list disk.img")
		} else if s := cmd.SuggestionsFor(args[0]); len(s) > 0 {
			err = fmt.Errorf("there is no verb %q (did you mean %q?)", args[0], s[0])
		}
		return &app.UsageError{Err: err, Path: "btrlab"}
	}
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return app.CheckOutputs(cmd) }
	root.SuggestionsMinimumDistance = 2
	root.AddGroup(&cobra.Group{ID: "image", Title: "Images:"}, &cobra.Group{ID: "files", Title: "Files in an image:"},
		&cobra.Group{ID: "measure", Title: "Measure:"}, &cobra.Group{ID: "study", Title: "Study:"})
	a.Add(root, "image", image.Images(a.Run)...)
	a.Add(root, "files", append(image.Files(a.Run), serve.Verbs(a.Run, image.OnOpen)...)...)
	a.Add(root, "measure", measure.Verbs(a.Run)...)
	a.Add(root, "study", append(study.Verbs(a.Run, study.Doors{
		Line:    func(a *app.Run, words []string) error { return serve.Line(a, image.OnOpen, words) },
		Compare: measure.Compared, Machine: measure.Simulated(),
	}), append(learn.Verbs(a.Run), a.merge())...)...)
	a.narrow(root)
	root.AddCommand(a.man())
	root.InitDefaultCompletionCmd() // for WrapArgs
	a.FaultFlags(root)
	policyDirFlags(root)
	a.OpenFlags(root)
	a.PartitionFlags(root)
	a.DeviceFlags(root)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &app.UsageError{Err: app.FlagError(err), Path: cmd.CommandPath()}
	})
	app.WrapArgs(root)
	return root
}

// wide are the verbs of Measure and Study whose output stays as it is: bench prints what fio does,
// the others draw a screen or ask.
var wide = []string{"bench", "step", "practice", "run", "watch"}

// narrow makes the verbs that print tables fit a narrow terminal. The others print what is in an
// image, for other programs.
func (a cmdline) narrow(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		if !slices.Contains(wide, c.Name()) && (c.GroupID == "measure" || c.GroupID == "study" || cmd.HasParent()) {
			a.NarrowOutput(c)
			a.narrow(c)
		}
	}
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
