package serve

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"net"
	"net/url"
	"os"
	gopath "path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"btrlab/internal/blockdev"
	"btrlab/internal/cli/app"
	"btrlab/internal/fs"
	"btrlab/internal/nbd"
	"btrlab/internal/nbd/filedisk"
	"btrlab/internal/sched"
)

// serveFlags are the flags of serve.
type serveFlags struct {
	serving
	nbd string
	any bool // listen beyond this machine
}

func (a verbs) serve() *cobra.Command {
	var o serveFlags
	cmd := &cobra.Command{
		Use:   "serve --nbd ADDRESS IMAGE[:/file]",
		Short: "serve a file of an image, or a whole image, as a disk, by NBD",
		Long: `Serve exports a file of an image as a disk to clients of the NBD protocol, such as qemu, nbd-client and nbdcopy. All that they read
and write goes through btrlab's engine, with the locks of --policy. Without a file the whole image is the disk, and the engine is not
asked. ADDRESS is unix:PATH or tcp:HOST:PORT. HOST is this machine's 127.0.0.1, [::1] or localhost, because nobody asks clients who
they are; --listen-any takes others. Port 0 takes a free one. What was written is durable once a flush, or a write with FUA, is
answered. Serve stays in the foreground; ^C or SIGTERM ends it: it answers what has come in, and commits.`,
		Example: `  btrlab serve --nbd unix:disk.sock disk.img:/vm.raw
  btrlab serve --nbd tcp:127.0.0.1:10809 --policy unlocked disk.img:/vm.raw
  btrlab serve --nbd unix:disk.sock --ro disk.img`,
		Args: cobra.ExactArgs(1),
	}
	cmd.ValidArgsFunction = a.CompleteSpec
	cmd.AddCommand(a.serveMeasure())
	f := cmd.Flags()
	f.StringVar(&o.nbd, "nbd", "", "where to listen: unix:PATH or tcp:HOST:PORT (required)")
	o.serving.flags(cmd, "refuse changes")
	f.BoolVar(&o.any, "listen-any", false, "listen on a HOST that other machines reach, too; they may read and write the disk")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if a.Open != nil {
			return errors.New("the image is open in sh, want btrlab serve --nbd ADDRESS IMAGE:/file")
		}
		if runtime.GOOS == "js" {
			return app.Usagef(cmd, "serve needs sockets, and a browser has none")
		}
		if err := o.parse(a, cmd); err != nil {
			return err
		}
		network, addr, err := o.address(cmd)
		if err != nil {
			return err
		}
		image, path, ofFile := a.SplitSpec(args[0])
		ofImage := app.Needs("policy memory commit device degraded subvol no-log-replay", "", "--%s is for a file of an image, want IMAGE:/file")
		if err := app.Check(cmd, ofImage.If(!ofFile)); err != nil {
			return err
		}
		l, err := listen(network, addr)
		if err != nil {
			return err
		}
		defer l.Close()
		if ofFile {
			err = a.serveFile(l, image, path, &o)
		} else {
			err = o.Around(a.Run, func() error { return a.serveImage(l, image, &o) })
		}
		return errors.Join(err, o.Print(cmd, a.Run))
	}
	return cmd
}

// address takes --nbd apart, for net.Listen.
func (o *serveFlags) address(cmd *cobra.Command) (network, addr string, err error) {
	network, addr, ok := strings.Cut(o.nbd, ":")
	switch {
	case !ok || addr == "" || network != "unix" && network != "tcp":
		return "", "", app.Usagef(cmd, "bad --nbd, have %q want unix:PATH or tcp:HOST:PORT", o.nbd)
	case network == "unix":
		return network, addr, nil
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil || port == "" {
		return "", "", app.Usagef(cmd, "bad --nbd, have %q want tcp:HOST:PORT", o.nbd)
	}
	if ip := net.ParseIP(host); !o.any && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return "", "", app.Usagef(cmd, "bad --nbd, %q is reached from other machines, want 127.0.0.1, or --listen-any", host)
	}
	return network, addr, nil
}

// listen is net.Listen. The socket of a server that was killed is taken over.
func listen(network, addr string) (net.Listener, error) {
	bad := func(err error) error {
		var op *net.OpError
		if errors.As(err, &op) {
			err = op.Err
		}
		return &blockdev.NameError{Name: network + ":" + addr, Err: fmt.Errorf("cannot listen: %w", err)}
	}
	if network == "unix" {
		st, err := os.Lstat(addr)
		switch {
		case errors.Is(err, iofs.ErrNotExist):
		case err != nil:
			return nil, err
		case st.Mode()&iofs.ModeSocket == 0:
			return nil, bad(errors.New("a file is there that is no socket"))
		default:
			if c, err := net.Dial(network, addr); err == nil {
				c.Close()
				return nil, bad(errors.New("another server has the socket"))
			}
			if err := os.Remove(addr); err != nil {
				return nil, err
			}
		}
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		return nil, bad(err)
	}
	return l, nil
}

// uri is what clients call l.
func uri(l net.Listener) string {
	if l.Addr().Network() != "unix" {
		return "nbd://" + l.Addr().String()
	}
	path := l.Addr().String()
	if whole, err := filepath.Abs(path); err == nil {
		path = whole
	}
	return "nbd+unix:///?socket=" + strings.ReplaceAll(url.PathEscape(filepath.ToSlash(path)), "%2F", "/")
}

// serveFile serves a file through the engine.
func (a verbs) serveFile(l net.Listener, image, path string, o *serveFlags) error {
	return o.open(a, image, a.WarnCopies(image), func(x *fs.FS) error {
		if line := degraded(image, x); line != "" {
			fmt.Fprintf(a.Err, "btrlab: %s\n", app.Shown(a.Err, line))
		}
		how := fs.O_RDWR
		if o.ro {
			how = fs.O_RDONLY
		}
		f, err := x.OpenFile(a.Task, path, how, 0)
		if err != nil {
			return app.InImage(image, path, err)
		}
		err = a.serveDisk(l, filedisk.New(a.Task, f), image+":"+path, nbd.Options{Policy: o.p.Name, Name: gopath.Base(path), ReadOnly: o.ro})
		return app.InImage(image, path, errors.Join(err, f.Close(a.Task)))
	})
}

// serveImage serves the bytes of the image itself.
func (a verbs) serveImage(l net.Listener, image string, o *serveFlags) error {
	base, err := blockdev.Open(image, o.deviceFlags())
	if err != nil {
		return app.Named(image, app.Whole(image, err))
	}
	dev, err := a.Over(base)
	if err != nil {
		return errors.Join(err, base.Close())
	}
	err = a.serveDisk(l, &imageDisk{dev}, image, nbd.Options{Name: filepath.Base(image), ReadOnly: o.ro, NoTrim: true})
	return app.Named(image, errors.Join(err, dev.Close()))
}

// serveDisk serves until SIGINT or SIGTERM comes, and makes durable what was written.
func (a verbs) serveDisk(l net.Listener, d nbd.Disk, name string, o nbd.Options) error {
	var mu sync.Mutex
	o.Warn = func(err error) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(a.Err, "btrlab: warning: %s: %s\n", name, app.Shown(a.Err, app.OneLine(err)))
	}
	s := nbd.New(d, o)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	_, err := fmt.Fprintf(a.Out, "%s (%d bytes) is at %s; press ^C to end\n", name, d.Size(), uri(l))
	if err == nil {
		select {
		case <-a.Stopped:
		case err = <-served:
		}
	}
	if err := errors.Join(err, s.Shutdown()); err != nil || o.ReadOnly {
		return err
	}
	return d.Flush(a.Task)
}

// imageDisk is a whole image as a disk.
type imageDisk struct{ dev blockdev.Device }

func (d *imageDisk) Size() int64 { return d.dev.Size() }

func (d *imageDisk) ReadAt(t *sched.Task, p []byte, off int64) error {
	return blockdev.Read(t, d.dev, p, off)
}

func (d *imageDisk) WriteAt(t *sched.Task, p []byte, off int64) error {
	return blockdev.Write(t, d.dev, p, off)
}

func (d *imageDisk) Flush(t *sched.Task) error { return blockdev.Flush(t, d.dev) }

// Trim is not offered: a whole image is served as it is.
func (d *imageDisk) Trim(*sched.Task, int64, int64) error { return nil }

// zeroBytes is what Zero writes.
var zeroBytes [256 << 10]byte

func (d *imageDisk) Zero(t *sched.Task, off, n int64, _ bool) error {
	for n > 0 {
		k := min(n, int64(len(zeroBytes)))
		if err := blockdev.Write(t, d.dev, zeroBytes[:k], off); err != nil {
			return err
		}
		off, n = off+k, n-k
	}
	return nil
}

// Extents knows no holes: a device does not say.
func (d *imageDisk) Extents(_ *sched.Task, _, n int64, f func(n int64, s nbd.State) bool) error {
	f(n, 0)
	return nil
}
