package serve

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/fs"
	"btrlab/internal/mount"
)

// mountFlags are the flags of mount, also as -o has them.
type mountFlags struct {
	mount.Options
	serving
	daemon, debug, remount bool
	cache                  string // of the kernel: none or kernel
	ring                   string // auto, yes or no
	options                []string
}

// rings are the values of --io-uring, by mount.Ring.
var rings = []string{mount.RingAuto: "auto", mount.RingNo: "no", mount.RingYes: "yes"}

func (a verbs) mount() *cobra.Command {
	var o mountFlags
	cmd := &cobra.Command{
		Use:   "mount IMAGE DIR",
		Short: "mount an image at a directory, by FUSE (Linux)",
		Long: `Mount serves the image at the empty directory DIR, so that every program can use its files; all that they read and write goes
through btrlab's engine, with the locks of --policy. It stays in the foreground until DIR is unmounted or ^C or SIGTERM comes, and
commits then; --daemon returns once DIR is mounted. A server that is killed leaves the last commit and the log of the fsyncs after
it, which the next mount replays. As root it mounts by itself, otherwise it takes fusermount3. A link to btrlab named
/sbin/mount.fuse.btrlab makes it known to mount(8) and fstab as type fuse.btrlab. -o takes ro, subvol=PATH, subvolid=N, policy=NAME,
cache=none|kernel, io_uring, memory=SIZE, commit=SECONDS, device=PATH, degraded, norecovery, discard, fsname=NAME, allow_other,
nonempty, relatime (the default), strictatime, noatime, nodiratime, nosuid, nodev, noexec, and remount to change ro and the last five.`,
		Example: `  btrlab mount disk.img /mnt
  btrlab mount disk.img /mnt --daemon --policy unlocked --allow-other
  btrlab mount disk.img /mnt -o ro,subvol=/home`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
	}
	o.Atime = fs.Relatime // Linux's default
	f := cmd.Flags()
	o.serving.flags(cmd, "mount read-only")
	f.BoolVar(&o.daemon, "daemon", false, "go to the background once the image is mounted")
	f.BoolVar(&o.AllowOther, "allow-other", false, "let other users use the mount, as its permissions say")
	f.BoolVar(&o.debug, "debug", false, "print each request of the kernel and its answer")
	f.StringVar(&o.cache, "cache", "none", "who caches file data: none, only btrlab does, so that its locks decide; kernel, the kernel does too, and writes back later")
	f.StringSliceVarP(&o.options, "options", "o", nil, "options of mount(8), with commas between them")
	app.CompleteFixed(cmd, "cache", []string{"none", "kernel"})
	f.StringVar(&o.ring, "io-uring", "auto", "how the kernel's requests come: yes by io_uring, no by reads of /dev/fuse, auto by io_uring if the kernel offers it")
	app.CompleteFixed(cmd, "io-uring", rings)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if a.Open != nil {
			return errors.New("the image is open in sh, want btrlab mount IMAGE DIR")
		}
		if !mount.Supported {
			return app.Usagef(cmd, "mount works on Linux; get, put and sh work on an image without a mount")
		}
		if err := a.mountOptions(cmd, &o); err != nil {
			return err
		}
		if err := o.parse(a, cmd); err != nil {
			return err
		}
		o.KernelCache = o.cache == "kernel"
		o.Past = o.model == "none" // else it shows what buffered writes do with the device
		o.Ring = mount.Ring(slices.Index(rings, o.ring))
		if err := app.Check(cmd, app.OneOf(o.cache, []string{"none", "kernel"}, "bad --cache, have %q want none or kernel"),
			app.OneOf(o.ring, rings, "bad --io-uring, have %q want auto, yes or no")); err != nil {
			return err
		}
		var err error
		if o.Source == "" {
			if o.Source, err = filepath.Abs(args[0]); err != nil {
				return err
			}
		}
		if o.Dir, err = filepath.Abs(args[1]); err != nil {
			return err
		}
		if o.remount {
			o.ReadOnly = o.ro
			return mount.Remount(o.Options)
		}
		if err := mount.Check(o.Options); err != nil {
			return err
		}
		if o.daemon && !isDaemon() {
			return a.startDaemon()
		}
		return errors.Join(a.serveMount(args[0], &o), o.Print(cmd, a.Run))
	}
	return cmd
}

// mountOptions takes the options of -o over.
func (a verbs) mountOptions(cmd *cobra.Command, o *mountFlags) error {
	for _, opt := range o.options {
		name, value, has := strings.Cut(opt, "=")
		set := func(flag string) error {
			if !has {
				return app.Usagef(cmd, "option %q, want %s=VALUE", opt, name)
			}
			if err := cmd.Flags().Set(flag, value); err != nil {
				return app.Usagef(cmd, "option %q: %v", opt, err)
			}
			return nil
		}
		var err error
		switch name {
		case "", "rw", "defaults", "auto", "noauto", "nofail", "user", "users", "owner", "_netdev", "suid", "dev", "exec", "async", "comment",
			"lazytime", "nolazytime", // which change nothing on a btrfs of Linux either
			// of /proc/mounts, for a remount
			"user_id", "group_id", "default_permissions", "max_read":
		case "ro":
			o.ro = true
		case "noatime":
			o.Atime = fs.Noatime
		case "relatime", "atime", "nostrictatime":
			o.Atime = fs.Relatime
		case "strictatime":
			o.Atime = fs.Strictatime
		case "nodiratime":
			o.NoDirAtime = true
		case "diratime":
			o.NoDirAtime = false
		case "allow_other":
			o.AllowOther = true
		case "remount":
			o.remount = true
		case "nonempty":
			o.NonEmpty = true
		case "nosuid":
			o.NoSUID = true
		case "nodev":
			o.NoDev = true
		case "noexec":
			o.NoExec = true
		case "degraded":
			a.Degraded = true
		case "norecovery", "nologreplay":
			a.NoReplay = true
		case "discard":
			o.discard = true
		case "nodiscard":
			o.discard = false
		case "debug":
			o.debug = true
		case "subvol", "subvolid":
			err = set("subvol")
		case "fsname":
			if o.Source = value; value == "" {
				return app.Usagef(cmd, "option %q, want fsname=NAME", opt)
			}
		case "io_uring": // as libfuse names it
			o.ring = "yes"
		case "policy", "cache", "memory", "device", "io-uring":
			err = set(name)
		case "commit":
			sec, perr := strconv.ParseUint(value, 10, 32)
			if perr != nil {
				return app.Usagef(cmd, "option %q, want commit=SECONDS", opt)
			}
			o.commit = time.Duration(sec) * time.Second
		default:
			if !strings.HasPrefix(name, "x-") {
				return app.Usagef(cmd, "unknown option %q", opt)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// serveMount opens the image, mounts it and serves it until the end.
func (a verbs) serveMount(image string, o *mountFlags) error {
	var mu sync.Mutex
	note := func(line string) {
		mu.Lock()
		defer mu.Unlock()
		a.mountNote(line)
	}
	o.Warn = func(err error) { note("warning: " + image + ": " + app.OneLine(err)) }
	if o.debug {
		o.Debug = note
	}
	badCopy := func(err error) { note("warning: " + image + ": a bad copy, another one was read: " + app.OneLine(err)) }
	a.Live = true
	return o.open(a, image, badCopy, func(x *fs.FS) error {
		o.ReadOnly = o.ro
		if line := degraded(image, x); line != "" {
			note(line)
		}
		m, err := mount.New(x, o.Options)
		if err != nil {
			return err
		}
		stop := func() {}
		if l, err := listenAt(o.Dir); err != nil {
			note("warning: no btrlab sh --at " + o.Dir + ": " + app.OneLine(err))
		} else {
			stop = a.serveAt(l, &liveImage{name: image, fs: x, m: m, flakeys: a.Flakeys})
		}
		if o.daemon {
			err = mountedDaemon()
		} else {
			_, err = fmt.Fprintf(a.Out, "%s is mounted at %s; unmount it, or press ^C, to end\n", image, o.Dir)
		}
		if err != nil {
			err = errors.Join(err, m.Unmount(true))
		}
		select {
		case <-m.Done():
		case <-a.Stopped:
			if err = m.Unmount(false); errors.Is(err, mount.ErrBusy) {
				note("warning: " + app.OneLine(err) + ": its programs get errors from now on")
				err = m.Unmount(true)
			}
			if err != nil {
				note(app.OneLine(err) + ": waiting for it to be unmounted")
				err = nil
			}
			<-m.Done()
		}
		stop()
		return errors.Join(err, m.Release(a.Task))
	})
}

// HelperArgs are the arguments of the program when mount(8) calls it by the name mount.fuse.btrlab,
// as IMAGE DIR [-sfnv] [-N namespace] [-o options] [-t type]; else args without the name.
func HelperArgs(args []string) []string {
	if len(args) == 0 || !strings.HasPrefix(filepath.Base(args[0]), "mount.") {
		return args[min(1, len(args)):]
	}
	out := []string{"mount", "--daemon"}
	for i := 1; i < len(args); i++ {
		switch arg := args[i]; {
		case arg == "-t", arg == "-N":
			i++
		case len(arg) > 1 && arg[0] == '-' && strings.Trim(arg[1:], "sfnv") == "":
		default:
			out = append(out, arg)
		}
	}
	return out
}
