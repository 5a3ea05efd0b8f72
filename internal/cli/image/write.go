package image

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/errno"
	"btrlab/internal/fs"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/script"
	"btrlab/internal/transfer"
)

func (a verbs) write() *cobra.Command {
	var offset, length app.ByteSize
	var data string
	var atEnd bool
	var how requestFlags
	cmd := &cobra.Command{
		Use:   "write IMAGE:/path",
		Short: "write standard input into an existing file at an offset, or at its end",
		Long: `Write writes standard input, or the text of --data, into an existing file. With --length it writes so many bytes in one
request: of the text again and again, or of 0xcd.`,
		Example: `  echo hello | btrlab write --offset 4k disk.img:/file
  btrlab write --offset 10 --data hello disk.img:/file
  date | btrlab write --append disk.img:/log`,
		Args: cobra.ExactArgs(1),
	}
	cmd.ValidArgsFunction = a.CompleteSpec
	cmd.Flags().Var(&offset, "offset", "where in the file the data goes (default 0)")
	cmd.Flags().StringVar(&data, "data", "", "write this text instead of standard input")
	cmd.Flags().BoolVar(&atEnd, "append", false, "write at the end of the file (the only place under chattr +a)")
	cmd.Flags().Var(&length, "length", "write so many bytes, in one request")
	how.flags(cmd, "write whole blocks past the page cache (O_DIRECT)")
	cmd.Flags().BoolVar(&how.dsync, "dsync", false, "return when the data is durable (RWF_DSYNC)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		image, path, err := a.FileSpec(cmd, args[0])
		if err != nil {
			return err
		}
		given := cmd.Flags().Changed("data")
		err = app.Check(cmd,
			app.Excludes("append", "offset", "--append and --offset, want one"),
			app.Not(!given && !length.Given && a.Open != nil, "nothing to write, want --data or --length"))
		if err != nil {
			return err
		}
		flags := directFlag(how.direct)
		if atEnd {
			flags |= fs.O_APPEND
		}
		return a.OnFile(image, path, flags, func(_ *fs.FS, f *fs.File) error {
			if given || length.Given {
				n, err := f.WriteIter(a.Task, how.request(offset.N), iopath.Source{Buf: script.Repeat(data, int(length.N), length.Given)})
				if a.Open != nil {
					a.Open.Bytes = &n
				}
				if how.nowait && errors.Is(err, errno.EOPNOTSUPP) {
					err = fmt.Errorf("%w; want --nowait with --direct, or in btrlab sh --policy modern", err)
				}
				return err
			}
			return transfer.Write(a.Task, &watcher{verbs: a}, f, a.Stdin(), offset.N)
		})
	}
	a.CacheFlag(cmd)
	return cmd
}

// requestFlags are the flags of preadv2(2) and pwritev2(2).
type requestFlags struct{ direct, nowait, dsync bool }

func (r *requestFlags) flags(cmd *cobra.Command, direct string) {
	cmd.Flags().BoolVar(&r.direct, "direct", false, direct)
	cmd.Flags().BoolVar(&r.nowait, "nowait", false, "fail with EAGAIN instead of waiting (RWF_NOWAIT)")
}

// request is one at offset off.
func (r *requestFlags) request(off int64) kiocb.Request {
	rq := kiocb.Request{Pos: uint64(off)}
	for _, f := range []struct {
		on   bool
		flag kiocb.Flags
	}{{r.direct, kiocb.Direct}, {r.nowait, kiocb.Nowait}, {r.dsync, kiocb.DSync}} {
		if f.on {
			rq.Flags |= f.flag
		}
	}
	return rq
}
