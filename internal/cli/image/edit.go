package image

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/blockdev"
	"btrlab/internal/cli/app"
	"btrlab/internal/format"
	"btrlab/internal/progs/dump"
	"btrlab/internal/progs/edit"
	"btrlab/internal/progs/rescue"
)

// editing is a command line of edit.
type editing struct {
	o                edit.Options
	keepSum, badSum  bool
	insert, del, dry bool
	data, undo       string

	block, tree uint64
	what        string // "super", "block", or "item"
	key         format.Key
	sets        []edit.Set
}

func (a verbs) edit() *cobra.Command {
	var e editing
	cmd := &cobra.Command{
		Use:   "edit IMAGE {super | block BYTENR | TREE KEY} [FIELD=VALUE]...",
		Short: "change fields and items of the structures of an image, right or wrong",
		Long: `Edit changes a field of the superblock, of the header of a tree block, or of an item, which is named by its tree and its key as dump tree prints
them, or inserts an item or deletes one, and prints what was there. It looks after nothing else: references, counts and free space are as they were, and
check says what is wrong then. Checksums are made right, unless --keep-csum or --bad-csum leave them wrong. Without a change it prints the fields that
there are. @OFFSET=BYTES changes bytes by their place, in hexadecimal. Copies are all changed, or one by --copy. What was there before goes to the
undo file, by which rescue undo brings it back. The data of a file is not changed by it: see write and put.`,
		Example: `  btrlab edit disk.img fs '(256 INODE_ITEM 0)'
  btrlab edit --undo before disk.img fs '(256 INODE_ITEM 0)' uid=1000 mode=40700
  btrlab edit --dry-run disk.img fs '(256 INODE_ITEM 0)' --delete
  btrlab edit --dry-run disk.img super generation=7 --bad-csum`,
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
	}
	f := cmd.Flags()
	f.BoolVar(&e.insert, "insert", false, "insert an item, of zeros but for its fields")
	f.BoolVar(&e.del, "delete", false, "delete an item")
	f.BoolVar(&e.o.Raw, "raw", false, "with --delete: leave its bytes in the leaf, which is not valid then")
	f.StringVar(&e.data, "data", "", "with --insert: the bytes of the item, in hexadecimal")
	f.BoolVar(&e.keepSum, "keep-csum", false, "leave the checksum as it was")
	f.BoolVar(&e.badSum, "bad-csum", false, "make the checksum wrong")
	f.IntVar(&e.o.Copy, "copy", -1, "change this copy only, from 0 on (default all)")
	f.BoolVar(&e.dry, "dry-run", false, "write nothing")
	f.StringVar(&e.undo, "undo", "", "the undo file, which must not be there (default IMAGE.undo)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		err := app.Check(cmd,
			app.Excludes("insert", "delete", "--insert and --delete, want one of them"),
			app.Excludes("keep-csum", "bad-csum", "--keep-csum and --bad-csum, want one of them"),
			app.Excludes("dry-run", "undo", "--dry-run writes no --undo"),
			app.Needs("data", "insert", "--data goes with --insert"),
			app.Needs("raw", "delete", "--raw goes with --delete"))
		if err == nil {
			err = e.parse(args[1:])
		}
		if err != nil {
			return &app.UsageError{Err: err, Path: cmd.CommandPath()}
		}
		if _, path, ok := a.SplitSpec(args[0]); ok && path != "" {
			return fmt.Errorf("%s: a file in an image; edit changes structures, want get, an editor and put, or mount", args[0])
		}
		return a.runEdit(args[0], &e)
	}
	return cmd
}

// parse reads what is to be changed.
func (e *editing) parse(args []string) error {
	switch {
	case e.badSum:
		e.o.Csum = edit.BadCsum
	case e.keepSum:
		e.o.Csum = edit.KeepCsum
	}
	var err error
	switch e.what = args[0]; e.what {
	case "super":
		args = args[1:]
	case "block":
		if len(args) < 2 {
			return fmt.Errorf("want block BYTENR")
		}
		if e.block, err = strconv.ParseUint(args[1], 0, 64); err != nil {
			return fmt.Errorf("%q, want block BYTENR, a number", args[1])
		}
		args = args[2:]
	default:
		var ok bool
		if e.tree, ok = dump.TreeID(args[0]); !ok {
			return fmt.Errorf("%q, want super, block, or a tree: root, chunk, dev, extent, fs, csum, free-space, block-group, uuid, quota, data-reloc or a number", args[0])
		}
		if len(args) < 2 {
			return fmt.Errorf("want %s KEY, as '(257 INODE_ITEM 0)'", args[0])
		}
		if e.key, err = dump.ParseKey(args[1]); err != nil {
			return fmt.Errorf("%q, %w", args[1], err)
		}
		e.what, args = "item", args[2:]
	}
	if e.what != "item" && (e.insert || e.del) {
		return fmt.Errorf("--insert and --delete are for items, want TREE KEY")
	}
	if e.del && len(args) > 0 {
		return fmt.Errorf("%q, want no field with --delete", args[0])
	}
	for _, w := range args {
		s, err := edit.ParseSet(w)
		if err != nil {
			return err
		}
		e.sets = append(e.sets, s)
	}
	return nil
}

// shows reports whether nothing is to be changed.
func (e *editing) shows() bool { return len(e.sets) == 0 && !e.insert && !e.del && !e.badSum }

func (a verbs) runEdit(image string, e *editing) error {
	flags := blockdev.Flags(0)
	if e.dry || e.shows() {
		flags = blockdev.ReadOnly
	}
	return a.WithDevices(image, flags, func(devs []blockdev.Device) error {
		x := edit.Open(a.Task, devs, e.o)
		if e.shows() {
			return a.showFields(x, e)
		}
		if err := e.carryOut(x); err != nil {
			return err
		}
		tell := func() {
			for _, c := range x.Changes {
				fmt.Fprintln(a.Out, app.Shown(a.Out, c))
			}
		}
		if e.dry {
			tell()
			fmt.Fprintf(a.Out, "%s: nothing is written\n", image)
			return nil
		}
		undo := cmp.Or(e.undo, image+".undo")
		if err := a.keepUndo(undo, func(w *rescue.UndoWriter, done func() error) error { return x.Commit(w.Add, done) }); err != nil {
			return err
		}
		tell()
		fmt.Fprintf(a.Out, "%s: changed; what was there is in %s\n", image, undo)
		return nil
	})
}

func (e *editing) carryOut(x *edit.Edit) error {
	switch {
	case e.what == "super":
		return x.Super(e.sets)
	case e.what == "block":
		return x.Block(e.block, e.sets)
	case e.del:
		return x.Delete(e.tree, e.key)
	case e.insert:
		var data []byte
		if e.data != "" {
			var err error
			if data, err = hex.DecodeString(strings.ReplaceAll(e.data, " ", "")); err != nil {
				return fmt.Errorf("--data, want bytes in hexadecimal")
			}
		}
		return x.Insert(e.tree, e.key, data, e.sets)
	}
	return x.Set(e.tree, e.key, e.sets)
}

func (a verbs) showFields(x *edit.Edit, e *editing) (err error) {
	var list []edit.Line
	switch e.what {
	case "super":
		list, err = x.ShowSuper()
	case "block":
		list, err = x.ShowBlock(e.block)
	default:
		list, err = x.ShowItem(e.tree, e.key)
	}
	for _, l := range list {
		fmt.Fprintf(a.Out, "%s=%s\n", l.Name, app.Shown(a.Out, l.Value))
	}
	return err
}
