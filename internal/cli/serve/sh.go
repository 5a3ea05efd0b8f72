package serve

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/errno"
	"btrlab/internal/fs"
	"btrlab/internal/kiocb"
	"btrlab/internal/policy"
	"btrlab/internal/script"
)

// shFlags are the flags of sh.
type shFlags struct {
	json, keepGoing bool
	policy, at      string
}

func (a verbs) sh() *cobra.Command {
	var o shFlags
	cmd := &cobra.Command{
		Use:   "sh IMAGE|--at DIR [FILE]",
		Short: "run verbs line by line on one open image",
		Long: `Sh reads verbs from FILE or standard input, a line each, and runs them on the image, which stays open with its caches until
the end. A path in the image is /path, without IMAGE:. Words are split at spaces; quotes and backslashes keep them together; a line
that begins with # is a comment. Besides the verbs for images and files there are cp, fsync, fdatasync, sync, drop-caches, policy, help
and quit. The first line that fails ends sh with exit code 1, after what was done before is committed. Consecutive lines that make
snapshots of one subvolume into one directory share a commit.
The line 'mount IMAGE DIR' opens another image, or with --partition another file system of the same disk, and puts it at the path DIR,
where nothing has to be: every verb takes paths below, and cp copies from one to the other. A verb that goes through a tree stays in
one image. 'umount DIR' commits and closes it, and so does the end.
With --at the image is the one that btrlab mount has at DIR: the lines run in its server, while programs go on to use the mount. Then
there are fault and crash, too, and none of the verbs that copy from or to the host.`,
		Example: `  echo 'write --nowait --length 4k /file' | btrlab sh --policy modern disk.img
  btrlab sh --json --policy modern disk.img script
  printf 'mount other.img /data\ncp -r /src /data\n' | btrlab sh disk.img
  echo 'snapshot /home /home.1' | btrlab sh --at /mnt`,
		Args:              cobra.RangeArgs(0, 2),
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
	}
	cmd.Flags().BoolVar(&o.json, "json", false, "print one line of JSON for each line")
	cmd.Flags().BoolVar(&o.keepGoing, "keep-going", false, "go on after a line that fails; exit code 1 in the end")
	cmd.Flags().StringVar(&o.policy, "policy", "", "locking policy of the write path (default locked)")
	cmd.Flags().StringVar(&o.at, "at", "", "the directory at which btrlab mount has the image")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		image := ""
		switch most := map[bool]int{true: 1, false: 2}[o.at != ""]; {
		case o.at != "" && o.policy != "":
			return app.Usagef(cmd, "--policy is of mount, want the line 'policy %s'", o.policy)
		case o.at == "" && len(args) == 0 || len(args) > most:
			return app.Usagef(cmd, "have %d arguments, want IMAGE [FILE], or with --at DIR [FILE]", len(args))
		case o.at == "":
			image, args = args[0], args[1:]
		}
		var opt fs.Options
		if o.policy != "" {
			p, err := policy.Parse(o.policy)
			if err != nil {
				return app.Usagef(cmd, "%v", err)
			}
			opt.Policy = &p
		}
		in, name := a.In, ""
		if len(args) == 1 {
			f, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer f.Close()
			in, name = f, args[0]
		}
		if o.at != "" {
			return a.runAt(o.at, in, name, o)
		}
		a.Session = new(app.Session)
		return a.WithFS(image, 0, opt, func(x *fs.FS) error {
			a.Open = &app.OpenImage{Name: image, Devs: x.Devices(), FS: x, Stdin: name == "", JSON: o.json}
			defer func() { a.Open = nil }()
			b := &snapshots{t: a.Task}
			a.Open.Snapshots = b
			err := a.lines(in, name, image, o, b, func(n int, text string) error { return a.line(n, text, b) })
			return app.WithCommit(err, a.UmountAll())
		})
	}
	a.CacheFlag(cmd)
	return cmd
}

// lineRun runs lines one after the other, until one ends it.
type lineRun struct {
	verbs
	shFlags
	name     string // of the file; empty for standard input
	terminal bool
	failed   bool  // a line has, and more followed
	over     bool  // no more lines
	err      error // of the run that is over
}

// ended takes note of the end of line n.
func (r *lineRun) ended(n int, err error) {
	switch {
	case err == nil || r.over:
		return
	case errors.Is(err, errQuit):
		r.over = true
		return
	case errors.Is(err, errGone), errors.Is(err, app.ErrInterrupted):
		r.over, r.err = true, err
		return
	case !r.json || !r.keepGoing:
		err = fmt.Errorf("%sline %d: %w", prefix(r.name), n, err)
	}
	if !r.keepGoing && !r.terminal {
		r.over, r.err = true, err
		return
	}
	r.failed = !r.terminal
	if !r.json {
		fmt.Fprintf(r.Err, "btrlab: %s\n", app.Shown(r.Err, app.OneLine(err)))
	}
}

// lines runs the lines of in, a file's with the name, or standard input, by run; prompt is for a
// terminal. What waits in b is done before more is read: who writes a line and waits for its result
// gets it.
func (a verbs) lines(in io.Reader, name, prompt string, o shFlags, b *snapshots, run func(n int, text string) error) error {
	r := &lineRun{verbs: a, shFlags: o, name: name}
	if f, ok := in.(*os.File); ok && name == "" {
		r.terminal = app.IsTerminal(f)
	}
	if name == "" && !r.terminal {
		in = a.Input()
	}
	out := a.Out // a line that makes others wait no longer has its own
	b.tell(func(n int, err error) bool {
		if o.json {
			a.Open.Result, a.Open.Bytes = nil, nil
			err = a.printResult(out, n, "snapshot", "", err)
		}
		r.ended(n, err)
		return r.over
	})
	sc := bufio.NewScanner(readerFunc(func(p []byte) (int, error) {
		if b.flush(); r.over {
			return 0, io.EOF
		}
		return in.Read(p)
	}))
	sc.Buffer(make([]byte, 64<<10), script.LineMax)
	for n := 1; !r.over; n++ {
		if r.terminal {
			b.flush()
			fmt.Fprintf(a.Err, "%s> ", prompt)
		}
		if !sc.Scan() {
			break
		}
		if err := a.Interrupted(); err != nil {
			b.flush() // of lines before
			return err
		}
		b.line(n)
		if err := run(n, sc.Text()); !errors.Is(err, errWaits) {
			r.ended(n, err)
		}
	}
	if b.flush(); r.err != nil {
		return r.err
	}
	if err := sc.Err(); errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("%sa line is longer than %d bytes", prefix(name), script.LineMax)
	} else if err != nil {
		return fmt.Errorf("%s%w", prefix(name), err)
	}
	if r.failed { // which has been said
		return app.ErrFound
	}
	return nil
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func prefix(name string) string {
	if name == "" {
		return ""
	}
	return name + ": "
}

// errQuit ends sh.
var errQuit = errors.New("quit")

// line runs one line. It is errWaits if that is left to b.
func (a verbs) line(n int, text string, b *snapshots) error {
	words, err := script.Words(text)
	if err == nil && len(words) == 0 {
		return nil
	}
	if err == nil {
		words = a.Alias(words)
	}
	if err != nil || words[0] != "snapshot" {
		if over := b.flush(); over {
			return errWaits // for ever: a line before it has ended the run
		}
	}
	if err == nil && (words[0] == "quit" || words[0] == "exit") && len(words) == 1 {
		return errQuit
	}
	if !a.Open.JSON {
		if err == nil {
			err = a.verbLine(words)
		}
		return err
	}
	out := a.Out
	var buf bytes.Buffer
	a.Out, a.Open.Result, a.Open.Bytes = &buf, nil, nil
	if err == nil {
		err = a.verbLine(words)
	}
	a.Out = out
	if errors.Is(err, errWaits) {
		return err
	}
	verb := ""
	if len(words) > 0 {
		verb = words[0]
	}
	return a.printResult(out, n, verb, buf.String(), err)
}

// printResult prints the result of a line to out as JSON, and returns the line's error.
func (a verbs) printResult(out io.Writer, n int, verb, output string, err error) error {
	r := lineResult{Line: n, Verb: verb, Result: a.Open.Result, Bytes: a.Open.Bytes}
	if r.Output = output; !utf8.ValidString(output) {
		r.Output, r.Base64 = "", base64.StdEncoding.EncodeToString([]byte(output))
	}
	if err != nil {
		r.Error = app.OneLine(err)
		var e errno.Errno
		var again kiocb.Again
		switch {
		case errors.As(err, &e):
			r.Errno = errno.Name(e)
		case errors.As(err, &again):
			r.Errno, r.Place, r.Reason = errno.Name(errno.EAGAIN), again.Place(), again.Reason()
		}
	}
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	if jerr := e.Encode(r); jerr != nil {
		return jerr
	}
	return err
}

// lineResult is the result of a line with --json.
type lineResult struct {
	Line   int    `json:"line"`
	Verb   string `json:"verb"`
	Bytes  *int   `json:"bytes,omitempty"`  // written
	Result any    `json:"result,omitempty"` // what the verb prints with --json
	Output string `json:"output,omitempty"` // what else it prints
	Base64 string `json:"base64,omitempty"` // ... when that is no text
	Errno  string `json:"errno,omitempty"`
	Error  string `json:"error,omitempty"`
	Place  string `json:"place,omitempty"`  // of EAGAIN: the step that would have slept
	Reason string `json:"reason,omitempty"` // ... and what for
}

// imageVerbs take no path but the image, which is the last word.
var imageVerbs = map[string]bool{"check": true, "scrub": true, "info": true, "df": true, "dump": true, "subvolume list": true,
	"quota enable": true, "quota disable": true, "quota rescan": true, "quota show": true}

// verbLine runs the verb that words name on the open image.
func (a verbs) verbLine(words []string) error {
	root := a.lineCommands()
	switch {
	case imageVerbs[words[0]], len(words) > 1 && imageVerbs[words[0]+" "+words[1]]:
		if name, ok := a.Open.Mounted(words[len(words)-1]); ok {
			words[len(words)-1] = name
		} else {
			words = append(words, a.Open.Name)
		}
	case words[0] == "ls" && !hasPath(words):
		words = append(words, "/")
	}
	if a.Open.JSON {
		if c, _, err := root.Find(words); err == nil && c.Flags().Lookup("json") != nil {
			words = append(words, "--json")
		}
	}
	root.SetArgs(words)
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	err := a.verb(root, words)
	var usage *app.UsageError
	switch {
	case errors.As(err, &usage):
		verb := strings.TrimPrefix(strings.TrimPrefix(usage.Path, root.Name()), " ")
		// a bad line is no usage error of btrlab
		return fmt.Errorf("%v; see '%s'", err, strings.TrimSpace("help "+verb))
	case errors.Is(err, app.ErrFound):
		return errors.New(words[0] + " has found something")
	}
	return err
}

// verb runs the verb with which root was set up.
func (a verbs) verb(root *cobra.Command, words []string) error {
	if a.live != nil {
		return a.live.around(a.Task, words, root.Execute)
	}
	return root.Execute()
}

func hasPath(words []string) bool {
	for _, w := range words[1:] {
		if strings.HasPrefix(w, "/") {
			return true
		}
	}
	return false
}

// lineCommands are the verbs of a line. Their help names no image.
func (a verbs) lineCommands() *cobra.Command {
	root := &cobra.Command{Use: "sh", Short: "verbs on an open image", SilenceUsage: true, SilenceErrors: true, Args: cobra.ArbitraryArgs,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true}}
	root.RunE = func(cmd *cobra.Command, args []string) error {
		return &app.UsageError{Err: fmt.Errorf("there is no verb %q", args[0]), Path: "sh"}
	}
	root.AddGroup(&cobra.Group{ID: "image", Title: "Images:"}, &cobra.Group{ID: "files", Title: "Files:"}, &cobra.Group{ID: "open", Title: "The open image:"})
	images, files := a.onOpen(a.Run)
	a.Add(root, "image", images...)
	a.Add(root, "files", files...)
	a.Add(root, "open", a.openFileVerb("fsync", "make a file or a directory durable"), a.openFileVerb("fdatasync", "the same as fsync"),
		a.openVerb("sync", "write all data back and commit", func(x *fs.FS) error { return x.Sync(a.Task) }),
		a.openVerb("drop-caches", "drop the clean pages of all files", func(x *fs.FS) error { x.DropCaches(a.Task); return nil }), a.policyVerb())
	if a.live != nil {
		a.Add(root, "open", a.faultVerb(), a.crashVerb())
	} else {
		a.Add(root, "open", a.mountLine(), a.umountLine())
	}
	var plain func(c *cobra.Command)
	plain = func(c *cobra.Command) {
		c.Use = strings.NewReplacer(" IMAGE[:/path]", " [/path]", " IMAGE:", " ", " IMAGE", "").Replace(c.Use)
		c.Example = strings.NewReplacer("btrlab ", "", " disk.img:", " ", " disk.img", "").Replace(c.Example)
		for _, sub := range c.Commands() {
			plain(sub)
		}
	}
	plain(root)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &app.UsageError{Err: app.FlagError(err), Path: cmd.CommandPath()}
	})
	app.SetHelp(root)
	app.WrapArgs(root)
	return root
}

// openVerb is a verb of sh alone.
func (a verbs) openVerb(name, short string, f func(x *fs.FS) error) *cobra.Command {
	return &cobra.Command{Use: name, Short: short, Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error { return a.Open.EachFS(f) }}
}

// openFileVerb is fsync by another name.
func (a verbs) openFileVerb(name, short string) *cobra.Command {
	return &cobra.Command{Use: name + " /path...", Short: short, Args: cobra.MinimumNArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		return a.EachImage(cmd, args, func(x *fs.FS, path string) error { return x.Fsync(a.Task, path) })
	}}
}

// policyVerb shows or changes the locking policy.
func (a verbs) policyVerb() *cobra.Command {
	return &cobra.Command{Use: "policy [NAME]", Short: "show or change the locking policy of the write path", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				_, err := fmt.Fprintln(a.Out, a.Open.FS.Policy().Name)
				return err
			}
			p, err := policy.Parse(args[0])
			if err != nil {
				return app.Usagef(cmd, "%v", err)
			}
			return a.Open.EachFS(func(x *fs.FS) error {
				x.SetPolicy(a.Task, &p)
				return nil
			})
		}}
}
