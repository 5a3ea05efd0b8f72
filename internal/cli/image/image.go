package image

import (
	"bufio"
	crand "crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"btrlab/internal/blockdev"
	"btrlab/internal/cli/app"
	raw "btrlab/internal/progs/image"
	"btrlab/internal/progs/metadump"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/prose"
)

func (a verbs) image() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "image",
		Short: "write the metadata of an image to a dump of btrfs-image, and restore one",
		Long: `Image writes and reads the format of btrfs-image: a dump has the metadata of a file system without its file data, for somebody
who is to look at a broken one. Btrlab btrfs-image, and a link to this program with the name btrfs-image, take the command line of that program.`,
		Example: `  btrlab image dump -c9 -s disk.img disk.dump
  btrlab image restore disk.dump copy.img`,
	}
	cmd.AddCommand(a.imageDump(), a.imageRestore())
	return cmd
}

func (a verbs) imageDump() *cobra.Command {
	var o metadump.CreateOptions
	names := 0
	cmd := &cobra.Command{
		Use:   "dump IMAGE... FILE",
		Short: "write a dump: all trees and superblocks, no file data",
		Long: `Dump writes the metadata of a file system to FILE, - for standard output, in the format of btrfs-image. IMAGE... are all its devices.
File data is left out, also what is in small files and where symbolic links lead: both read as zeros. So do checksums of data.
Names of files and attributes are in it unless they are sanitized: -s gives each name random letters, -ss random letters of the
same hash, so that the restored image can be listed and checked. Names of four bytes or less stay then: nothing else has their hash, which
tells them anyway. With -s Linux refuses directories of the restored image, and check says so. The values of attributes are zeros with both.
Names of subvolumes are sanitized as well, which btrfs-image leaves. The label and names of attributes stay.
A tree block that no device has whole is left out, with a line each; the exit code is 1 then.`,
		Example: `  btrlab image dump -c9 disk.img disk.dump
  btrlab image dump -c9 -ss disk.img disk.dump
  btrlab image dump a.img b.img both.dump`,
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
	}
	f := cmd.Flags()
	f.IntVarP(&o.Level, "compress", "c", 0, "level of zlib, 1 to 9; 0 does not compress")
	f.CountVarP(&names, "sanitize", "s", "random names; twice: of the same hash")
	f.BoolVarP(&o.Walk, "walk", "w", false, "take only the blocks that the trees reach, and not those that only the extent tree lists")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := app.Check(cmd, app.Within(o.Level, 0, 9, "compression level %d, want 0 to 9"), app.Within(names, 0, 2, "-s %d times, want it once or twice")); err != nil {
			return err
		}
		o.Names = metadump.Names(names)
		if _, err := crand.Read(o.Seed[:]); err != nil {
			return err
		}
		dest := args[len(args)-1]
		for _, image := range args[:len(args)-1] {
			if blockdev.Same(image, dest) {
				return app.Usagef(cmd, "the dump would be written over %s, want another file", image)
			}
		}
		return a.dumpTo(args[:len(args)-1], dest, o)
	}
	return cmd
}

// dumpTo writes a dump of the devices to dest.
func (a verbs) dumpTo(images []string, dest string, o metadump.CreateOptions) error {
	a.Devices = append(images[1:], a.Devices...)
	out := a.Out
	if dest == "-" {
		out = a.Err
	}
	b := a.NewBar("dump", true)
	defer b.Done()
	o.Progress = func(done, total uint64) { b.Set("dump", done, total) }
	o.Stop = a.Interrupted
	o.Note = func(text string) { fmt.Fprintln(out, app.Shown(out, text)) }
	var sum metadump.Created
	err := a.WithDevices(images[0], blockdev.ReadOnly, func(devs []blockdev.Device) error {
		im, err := raw.Open(a.Task, devs[0], devs[1:]...)
		if err != nil {
			return err
		}
		if n := im.SB.NumDevices; uint64(len(devs)) != n && !a.Degraded {
			return fmt.Errorf("file system of %d devices, have %d: name the others as well, or --degraded", n, len(devs))
		}
		write := func(w io.Writer) (err error) {
			buf := bufio.NewWriterSize(w, 1<<20)
			sum, err = metadump.Create(im, buf, o)
			return errors.Join(err, buf.Flush())
		}
		if dest == "-" {
			return write(a.Out)
		}
		return app.ReplaceFile(dest, write)
	})
	b.Done()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: %s, %s in the dump\n", images[0], prose.Count(sum.Blocks, "tree block"), app.HumanSize(uint64(sum.Bytes)))
	if sum.Kept > 0 {
		fmt.Fprintf(out, "  %s of 4 bytes or less as they are: their hashes tell them\n", prose.Count(sum.Kept, "name"))
	}
	if sum.Unalike > 0 {
		fmt.Fprintf(out, "  %s without another one of the same hash: a check of the restored image complains\n", prose.Count(sum.Unalike, "name"))
	}
	if sum.Left+sum.Headers > 0 {
		fmt.Fprintf(out, "  %s left out, %d with headers only\n", prose.Count(sum.Left, "block"), sum.Headers)
		return app.ErrFound
	}
	return nil
}

func (a verbs) imageRestore() *cobra.Command {
	var logical, force bool
	cmd := &cobra.Command{
		Use:   "restore FILE IMAGE...",
		Short: "make an image of a dump",
		Long: `Restore makes an image of a dump of btrfs-image or of image dump; FILE - is standard input. The image has no file data, so it is opened
read-only, and check says in one line that it does not judge data. A file that is not there is made, sparse.
With one IMAGE the file system has one device: if it had several, its chunks, block groups and devices are changed to that. With several it
has those that it had, in the order of their numbers. With -o all trees stay as they are and blocks lie at their logical addresses, which is
for tools that look for them there: nothing mounts it.`,
		Example: `  btrlab image restore disk.dump copy.img
  btrlab image restore both.dump a-copy.img b-copy.img`,
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
	}
	f := cmd.Flags()
	f.BoolVarP(&logical, "logical", "o", false, "do not change the chunk tree: blocks lie at their logical addresses")
	f.BoolVarP(&force, "force", "f", false, "write over a file system that is there")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		from, images := args[0], append(args[1:], a.Devices...)
		way := metadump.OneDevice
		switch {
		case logical && len(images) > 1:
			return app.Usagef(cmd, "-o with %d images, want one", len(images))
		case logical:
			way = metadump.Logical
		case len(images) > 1:
			way = metadump.SameDevices
		}
		for i, image := range images {
			for _, other := range append([]string{from}, images[:i]...) {
				if blockdev.Same(image, other) {
					return app.Usagef(cmd, "%s and %s are the same file", other, image)
				}
			}
		}
		return a.withDump(from, func(d *metadump.Dump) error { return a.restoreTo(d, from, images, way, force) })
	}
	return cmd
}

// withDump opens a dump. What is no file is copied to one in TMPDIR first, because a dump is read
// twice.
func (a verbs) withDump(name string, f func(d *metadump.Dump) error) error {
	in, err := os.Stdin, error(nil)
	if name != "-" {
		if in, err = os.Open(name); err != nil {
			return err
		}
		defer in.Close()
	}
	st, err := in.Stat()
	if name == "-" || err == nil && st.Mode()&os.ModeNamedPipe != 0 {
		var r io.Reader = in
		if name == "-" {
			r = a.Stdin()
		}
		spool, err := os.CreateTemp("", "btrlab-dump-")
		if err != nil {
			return err
		}
		defer os.Remove(spool.Name())
		defer spool.Close()
		if _, err := io.Copy(spool, r); err != nil {
			return err
		}
		in = spool
		st, err = in.Stat()
		if err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	d, err := metadump.Open(in, st.Size())
	if errors.Is(err, metadump.ErrNoDump) {
		head := make([]byte, 64)
		n, _ := in.ReadAt(head, 0)
		if what, how := app.Container(string(head[:n])); what != "" {
			err = fmt.Errorf("is %s, want a dump of btrfs-image: %s", what, how)
		}
	}
	if err != nil {
		return app.Named(name, err)
	}
	return f(d)
}

// restoreTo restores a dump to images. Those that it has made are removed after an error.
func (a verbs) restoreTo(d *metadump.Dump, from string, images []string, way metadump.Way, force bool) (err error) {
	if n := d.Super.NumDevices; way == metadump.SameDevices && uint64(len(images)) != n {
		return app.Named(from, fmt.Errorf("file system of %d devices, have %d images, want %d or one", n, len(images), n))
	}
	sizes, err := d.Sizes(way)
	if err != nil {
		return app.Named(from, err)
	}
	var devs []blockdev.Device
	var made []string
	defer func() {
		for _, dev := range devs {
			if cerr := dev.Close(); err == nil {
				err = cerr
			}
		}
		if err != nil {
			for _, image := range made {
				os.Remove(image)
			}
		}
	}()
	for i, image := range images {
		dev, isNew, err := a.openForRestore(image, sizes[i], force)
		if err != nil {
			return app.Named(image, err)
		}
		devs = append(devs, a.Faults.On(dev))
		if isNew {
			made = append(made, image)
		}
	}
	b := a.NewBar("restore", true)
	defer b.Done()
	err = d.Restore(a.Task, way, devs, func(done, total uint64) error {
		b.Set("restore", done, total)
		return a.Interrupted()
	})
	switch {
	case errors.Is(err, app.ErrInterrupted):
		return app.ErrUnmade
	case err != nil && !a.OfOther(err):
		return app.Named(from, err)
	case err != nil:
		return err
	}
	b.Done()
	for i, image := range images {
		fmt.Fprintf(a.Out, "%s: device %d of %d, %s, without file data\n", image, i+1, len(images), app.HumanSize(uint64(sizes[i])))
	}
	return nil
}

// openForRestore makes an image of n bytes, or opens a block device of that many. What holds a file
// system is left alone unless force is set.
func (a verbs) openForRestore(image string, n int64, force bool) (dev blockdev.Device, made bool, err error) {
	st, err := os.Stat(image)
	if errors.Is(err, os.ErrNotExist) {
		dev, err = blockdev.Create(image, n)
		return dev, err == nil, err
	}
	if err != nil {
		return nil, false, err
	}
	if st.IsDir() {
		return nil, false, errors.New("is a directory, want a file or a block device")
	}
	if st.Mode().IsRegular() && st.Size() == 0 {
		dev, err = blockdev.Create(image, n)
		return dev, false, err
	}
	if dev, err = blockdev.Open(image, 0); err != nil {
		return nil, false, err
	}
	if !force {
		found, err := mkfs.Probe(a.Task, dev)
		if err == nil && found != "" {
			err = &mkfs.ExistsError{Device: dev.Name(), Found: found}
		}
		if err != nil {
			return nil, false, errors.Join(err, dev.Close())
		}
	}
	if st.Mode().IsRegular() {
		if err := dev.Close(); err != nil {
			return nil, false, err
		}
		dev, err = blockdev.Create(image, n)
		return dev, false, err
	}
	if dev.Size() < n {
		return nil, false, errors.Join(fmt.Errorf("has %d bytes, want %d", dev.Size(), n), dev.Close())
	}
	return dev, false, nil
}
