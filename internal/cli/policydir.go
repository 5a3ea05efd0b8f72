package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/study/own"
	"btrlab/internal/study/sandbox"
)

// policyDirFlag is the flag with a folder of a policy of the user's own.
const policyDirFlag = "policy-dir"

// exitCode is the end of the program that was built with the user's policies, which has said all.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// policyDirFlags gives --policy-dir to every verb that takes a policy.
func policyDirFlags(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		policyDirFlags(c)
	}
	f := cmd.Flags()
	if f.Lookup("policy") == nil && !slices.Contains([]string{"practice", "policy list", "policy show"}, strings.TrimPrefix(cmd.CommandPath(), "btrlab ")) {
		return
	}
	f.StringArray(policyDirFlag, nil, "folder of a policy of your own, which has the folder's name; 'btrlab policy new' makes one; may be repeated")
	_ = cmd.MarkFlagDirname(policyDirFlag)
}

// policyDirs are the folders of --policy-dir on a command line that has not been parsed: what a
// policy is called must be known before the verbs are made. The folder of policy test is one.
func policyDirs(args []string) (dirs []string) {
	if len(args) > 2 && args[0] == "policy" && args[1] == "test" {
		for _, dir := range args[2:] {
			if at, err := os.Stat(dir); err == nil && at.IsDir() {
				dirs = append(dirs, dir)
				break
			}
		}
	}
	for i := 0; i < len(args); i++ {
		name, value, given := strings.Cut(args[i], "=")
		switch {
		case args[i] == "--":
			return dirs
		case args[i] == "-h", args[i] == "--help":
			return nil
		case name != "--"+policyDirFlag:
		case given:
			dirs = append(dirs, value)
		case i+1 < len(args):
			i++
			dirs = append(dirs, args[i])
		}
	}
	return dirs
}

// ownPolicies makes the folders of --policy-dir policies. If one has Go that is not built in, it
// builds a program with it, runs that on the command line, and returns its exitCode.
func (a cmdline) ownPolicies(built []own.Compiled, args []string) error {
	var compile []*own.Folder
	for _, dir := range policyDirs(args) {
		x, err := own.Read(dir)
		switch {
		case err != nil:
			return &app.UsageError{Err: fmt.Errorf("--%s: %w", policyDirFlag, err), Path: "btrlab policy new"}
		case !x.Compiled():
			err = x.Add()
		case len(built) == 0:
			compile = append(compile, x)
		}
		if err != nil {
			return &app.UsageError{Err: fmt.Errorf("--%s %s: %w", policyDirFlag, dir, err), Path: "btrlab policy new"}
		}
	}
	for i := range built {
		if err := built[i].Add(); err != nil {
			return &app.UsageError{Err: fmt.Errorf("--%s %s: %w", policyDirFlag, built[i].Dir, err), Path: "btrlab policy new"}
		}
	}
	if len(compile) == 0 {
		return nil
	}
	return a.runBuilt(compile, args)
}

// runBuilt builds the program with the Go of the folders and runs it on args.
func (a cmdline) runBuilt(folders []*own.Folder, args []string) error {
	root, err := sandbox.Root(".")
	if err != nil {
		return err
	}
	ctx, cancel := a.Context(context.Background())
	defer cancel()
	st := a.NewStatus()
	st.Show("building " + folders[0].Name)
	bin, remove, err := own.Build(ctx, root, folders)
	st.Done()
	defer remove()
	var wrong *own.FolderError
	switch {
	case ctx.Err() != nil:
		return app.ErrNothing
	case errors.As(err, &wrong):
		return &app.UsageError{Err: fmt.Errorf("--%s: %w", policyDirFlag, wrong), Path: "btrlab policy new"}
	case err != nil:
		return fmt.Errorf("build the policy: %w", err)
	}
	cmd := exec.Command(bin, args...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.In, a.Out, a.Err
	if k, ok := a.Out.(*keptOutput); ok {
		cmd.Stdout = k.w
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("run the policy: %w", err)
	}
	// A terminal sends SIGINT to both.
	term := make(chan os.Signal, 1)
	signal.Notify(term, hangup(syscall.SIGTERM)...)
	defer signal.Stop(term)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case s := <-term:
			_ = cmd.Process.Signal(s)
		case err := <-ended:
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				return fmt.Errorf("run the policy: %w", err)
			}
			return exitCode(cmd.ProcessState.ExitCode())
		}
	}
}
