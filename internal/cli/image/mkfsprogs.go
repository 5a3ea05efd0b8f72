package image

import (
	"cmp"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/blockdev"
	"btrlab/internal/cli/app"
	"btrlab/internal/format"
	"btrlab/internal/progs/dump"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/transfer"
)

// asProgs is the verb mkfs with the command line of mkfs.btrfs, for those who build images with it.
type asProgs struct {
	making
	sectorSize, byteCount app.ByteSize
	runtime, inodeFlags   []string
	deviceUUID            string
	version, reflink      bool
	verbose               int
	ignored               bool
}

// ProgsName is the name of the verb, and of the program that is called by it.
const ProgsName = "mkfs.btrfs"

// progsVersion is the release of btrfs-progs whose words are known.
const progsVersion = "6.19"

func (a verbs) mkfsProgs() *cobra.Command {
	cmd := &cobra.Command{
		Use:    ProgsName + " DEVICE...",
		Short:  "mkfs with the words of btrfs-progs",
		Hidden: true,
		Long: `Mkfs.btrfs makes a btrfs with the command line of mkfs.btrfs of btrfs-progs ` + progsVersion + `: what calls that program can call
this one, by a link of that name or as btrlab mkfs --progs. The devices are there already, but for a file that --rootdir
fills. It exits with 1 after any error. Zoned devices, raid-stripe-tree, extent-tree-v2 and sectors of another size than
4096 bytes are not made.`,
		Example: `  btrlab mkfs.btrfs --force --label root --byte-count 200M disk.img
  btrlab mkfs.btrfs -f -L root -U 2a7e1ffc-2f8d-4cb8-9a1b-6dd5f4b3a0c1 --rootdir rootfs --compress zstd:3 --shrink disk.img`,
		Args: cobra.ArbitraryArgs,
	}
	v := &asProgs{making: making{verbs: a, cmd: cmd, opened: blockdev.Managed}}
	v.flags()
	cmd.RunE = func(_ *cobra.Command, args []string) error { return v.run(args) }
	return cmd
}

func (v *asProgs) flags() {
	f := v.cmd.Flags()
	f.StringVarP(&v.o.DataProfile, "data", "d", "", "data profile: "+strings.Join(mkfs.Profiles(), ", "))
	f.StringVarP(&v.o.MetadataProfile, "metadata", "m", "", "metadata profile, as --data")
	f.BoolVarP(&v.o.Mixed, "mixed", "M", false, "block groups that hold data and metadata")
	f.StringVar(&v.csum, "csum", "crc32c", "checksums: crc32c, xxhash, sha256, blake2")
	f.StringVar(&v.csum, "checksum", "crc32c", "as --csum")
	f.VarP(&v.nodeSize, "nodesize", "n", "bytes of a tree block: 4k, 8k, 16k (default), 32k or 64k")
	f.VarP(&v.sectorSize, "sectorsize", "s", "bytes of a data block: 4096")
	f.StringSliceVarP(&v.features, "features", "O", nil, "features, ^NAME is without; list-all lists them")
	f.StringSliceVarP(&v.runtime, "runtime-features", "R", nil, "as --features")
	f.StringVarP(&v.o.Label, "label", "L", "", "label of at most 255 bytes")
	f.StringVarP(&v.uuid, "uuid", "U", "", "identifier of the file system")
	f.StringVar(&v.deviceUUID, "device-uuid", "", "identifier of the device, of a file system on one")
	f.VarP(&v.byteCount, "byte-count", "b", "bytes to use of each device")
	f.StringVarP(&v.tree.rootdir, "rootdir", "r", "", "fill it with what is in this directory")
	f.StringVar(&v.tree.compress, "compress", "", "compress what is in it: no, zlib[:1-9], lzo or zstd[:1-15]")
	f.StringArrayVarP(&v.tree.subvols, "subvol", "u", nil, "make this directory of it a subvolume: [rw:|ro:|default:|default-ro:]PATH; may be repeated")
	f.StringArrayVar(&v.inodeFlags, "inode-flags", nil, "give this file of it, or what is below this directory, flags: nodatacow,nodatasum:PATH; may be repeated")
	f.BoolVar(&v.reflink, "reflink", false, "copies of what is in it may share its space where the host can; here they are copied")
	f.BoolVar(&v.tree.shrink, "shrink", false, "make it no larger than the tree needs")
	f.BoolVarP(&v.ignored, "nodiscard", "K", false, "do not discard the device; never done here")
	f.BoolVarP(&v.o.Force, "force", "f", false, "overwrite a file system that is there")
	f.BoolVarP(&v.quiet, "quiet", "q", false, "print nothing but errors")
	f.CountVarP(&v.verbose, "verbose", "v", "print the name of each file; may be repeated")
	f.BoolVarP(&v.version, "version", "V", false, "print the version")
}

func (v *asProgs) run(devices []string) error {
	switch {
	case v.version:
		_, err := fmt.Fprintf(v.Out, "%s, part of btrlab, with the command line of btrfs-progs v%s\n", ProgsName, progsVersion)
		return err
	case slices.Contains(append(v.features, v.runtime...), "list-all"):
		_, err := fmt.Fprintf(v.Out, "Filesystem features available:\n%s\n", strings.Join(mkfs.Features(), "\n"))
		return err
	case len(devices) == 0:
		return errors.New("have no device, want one or more")
	}
	dated, err := v.parseProgs(devices)
	if err != nil {
		return err
	}
	info, err := v.makeAt(devices, dated, false)
	if full := new(mkfs.NoSpaceError); errors.As(err, &full) && v.tree.root != nil && isRegular(devices[0]) {
		info, err = v.makeAt(devices, dated, true)
	}
	switch {
	case err != nil:
		return err
	case !v.quiet:
		v.print(info, devices)
	}
	if name := v.parity(); name != "" {
		fmt.Fprintf(v.Err, "WARNING: %s has the write hole: %s\n", strings.ToUpper(name), writeHole)
	}
	return v.tree.w.allThere()
}

func isRegular(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

// makeAt makes the file system on the devices as they are, or with a tree on a file as large as it
// needs. A file that is not there gets that size at once.
func (v *asProgs) makeAt(devices []string, dated, large bool) (info dump.Info, err error) {
	if err := v.tree.scan(v.verbs, devices[0], v.o.Now); err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, v.tree.close()) }()
	if dated {
		v.tree.undated()
	}
	if err := v.flagInodes(); err != nil {
		return info, err
	}
	n, undo, err := v.fit(devices, large)
	if err != nil {
		return info, err
	}
	if info, err = v.makeOn(devices, n, v.tree.root != nil); err != nil {
		undo()
	}
	return info, err
}

// parseProgs checks the flags and gives those that have no value what mkfs.btrfs gives them.
func (v *asProgs) parseProgs(devices []string) (dated bool, err error) {
	for i, d := range devices {
		_, err := os.Stat(d)
		if err != nil && (v.tree.rootdir == "" || !errors.Is(err, iofs.ErrNotExist)) {
			return false, err
		}
		if slices.ContainsFunc(devices[:i], func(o string) bool { return blockdev.Same(o, d) }) {
			return false, fmt.Errorf("%s is named twice", d)
		}
	}
	if v.inUse() {
		return false, fmt.Errorf("uuid %s is that of a file system that is mounted", v.uuid)
	}
	err = app.Check(v.cmd,
		app.Not(v.tree.rootdir != "" && len(devices) > 1, "--rootdir with several devices, want one"),
		app.Needs("shrink reflink subvol inode-flags compress", "rootdir", "--%s without --rootdir"),
		app.Not(v.sectorSize.Given && v.sectorSize.N != format.SectorSize, "sectors of another size than 4096 bytes are not made"),
		app.Not(v.deviceUUID != "" && len(devices) > 1, "--device-uuid with several devices, want one"))
	if err != nil {
		return false, err
	}
	if v.tree.compress == "no" {
		v.tree.compress = ""
	}
	v.features = append(v.runtime, v.features...)
	if !slices.Contains(v.features, "^no-holes") { // which a block group tree needs
		v.features = slices.Insert(v.features, 0, "block-group-tree")
	}
	// the profile brings it
	v.features = slices.DeleteFunc(v.features, func(s string) bool { return s == "raid1c34" })
	v.csum = strings.ToLower(v.csum)
	v.o.DataProfile = strings.ToLower(v.o.DataProfile)
	v.o.MetadataProfile = strings.ToLower(v.o.MetadataProfile)
	v.Devices, v.tree.verbose = devices[1:], v.verbose > 0
	v.quiet = v.quiet && v.verbose == 0
	if v.deviceUUID != "" {
		var ok bool
		if v.o.DevUUID, ok = format.ParseUUID(v.deviceUUID); !ok {
			return false, fmt.Errorf("device uuid %q, want one as that of --uuid", v.deviceUUID)
		}
	}
	dated, err = v.parse()
	v.o.Size = v.byteCount.N
	return dated, err
}

// inUse reports whether Linux has a file system with the identifier mounted: it takes two with one
// identifier for one.
func (v *asProgs) inUse() bool {
	if v.uuid == "" {
		return false
	}
	_, err := os.Stat("/sys/fs/btrfs/" + strings.ToLower(v.uuid))
	return err == nil
}

// checkSizes says which file is too small for a file system without a tree, in the words of
// mkfs.btrfs where programs read them: the size that is enough comes last.
func (v *asProgs) checkSizes(devices []string) error {
	for _, d := range devices {
		st, err := os.Stat(d)
		switch {
		case err != nil:
			return err
		case !st.Mode().IsRegular():
		case min(st.Size(), cmp.Or(v.byteCount.N, st.Size())) < mkfs.MinSize:
			return fmt.Errorf("'%s' is too small to make a usable filesystem: minimum size for each btrfs device is %d", d, mkfs.MinSize)
		case st.Size() < v.byteCount.N:
			return fmt.Errorf("%s has %d bytes, want %d", d, st.Size(), v.byteCount.N)
		}
	}
	return nil
}

// fit is the size of the file system on the file with a tree, which the file grows to; undo gives
// it its size back. Otherwise it is 0: what the devices have.
func (v *asProgs) fit(devices []string, large bool) (n int64, undo func(), err error) {
	undo = func() {}
	if v.tree.root == nil {
		return 0, undo, v.checkSizes(devices)
	}
	device := devices[0]
	st, err := os.Stat(device)
	missing := errors.Is(err, iofs.ErrNotExist)
	switch {
	case err != nil && !missing:
		return 0, undo, err
	case !missing && !st.Mode().IsRegular():
		return 0, undo, nil
	}
	n = v.byteCount.N
	if n == 0 && !missing {
		n = st.Size()
	}
	if large || missing {
		n = max(n, transfer.Need(v.tree.root))
	}
	n = int64(format.AlignUp(uint64(max(n, mkfs.MinSize)), format.SectorSize))
	if v.o.Size = n; missing || st.Size() >= n {
		return n, undo, nil
	}
	old := st.Size()
	return n, func() { _ = os.Truncate(device, old) }, os.Truncate(device, n)
}

// inodeFlagNames are the flags that --inode-flags knows.
var inodeFlagNames = map[string]uint64{"nodatacow": format.InodeNoDataCow, "nodatasum": format.InodeNoDataSum}

// flagInodes gives the files of the tree the flags that they are to have.
func (v *asProgs) flagInodes() error {
	for _, arg := range v.inodeFlags {
		names, path, ok := strings.Cut(arg, ":")
		var flags uint64
		for name := range strings.SplitSeq(names, ",") {
			flag, known := inodeFlagNames[name]
			ok = ok && known
			flags |= flag
		}
		if !ok {
			return fmt.Errorf("--inode-flags %s, want nodatacow or nodatasum, : and a path", arg)
		}
		e := find(v.tree.root, path)
		if e == nil {
			return fmt.Errorf("--inode-flags %s: no such file in the tree", arg)
		}
		eachBelow(e, func(e *mkfs.Entry) { e.Flags |= flags })
	}
	return nil
}

// print says what was made, as mkfs.btrfs does.
func (v *asProgs) print(i dump.Info, devices []string) {
	fmt.Fprintf(v.Out, "%s, part of btrlab\n\n", ProgsName)
	fmt.Fprintf(v.Out, "Label:              %s\n", cmp.Or(i.Label, "(null)"))
	fmt.Fprintf(v.Out, "UUID:               %s\n", i.FSID)
	fmt.Fprintf(v.Out, "Node size:          %d\nSector size:        %d\t(CPU page size: %d)\n", i.NodeSize, i.SectorSize, os.Getpagesize())
	fmt.Fprintf(v.Out, "Filesystem size:    %s\nBlock group profiles:\n", app.HumanSize(i.TotalBytes))
	names := map[string]string{"data": "Data:", "metadata": "Metadata:", "mixed": "Data+Metadata:", "system": "System:"}
	for _, u := range i.Usage {
		profile := u.Profile
		if profile != "single" {
			profile = strings.ToUpper(profile)
		}
		fmt.Fprintf(v.Out, "  %-17s %-8s %16s\n", names[u.Type], profile, app.HumanSize(u.Total))
	}
	fmt.Fprintf(v.Out, "SSD detected:       no\nZoned device:       no\nFeatures:           %s\nChecksum:           %s\n", progsFeatures(i.Features), i.Csum)
	fmt.Fprintf(v.Out, "Number of devices:  %d\nDevices:\n   ID        SIZE  PATH\n", len(i.Devices))
	for n, d := range i.Devices {
		fmt.Fprintf(v.Out, "  %3d %11s  %s\n", d.Devid, app.HumanSize(d.Size), devices[n])
	}
	fmt.Fprintln(v.Out)
}

// progsFeatures are the features that mkfs.btrfs names.
func progsFeatures(all []string) string {
	all = slices.DeleteFunc(slices.Clone(all), func(s string) bool {
		return slices.Contains([]string{"mixed-backref", "big-metadata", "free-space-tree-valid"}, s)
	})
	return strings.Join(all, ", ")
}
