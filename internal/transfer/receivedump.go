package transfer

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"btrlab/internal/format"
	ss "btrlab/internal/sendstream"
)

// DumpStream prints the streams of r, a line for each command but the ends: its name, the path
// below the directory that would receive it, and the rest. Stop, if it is set, is asked before each
// command and ends the work by an error. What came before an error is printed.
//
// Models cmds/receive-dump.c of btrfs-progs, with its columns. Differences: a value of an attribute
// is printed as any text, also the zero bytes in it.
func DumpStream(w io.Writer, r io.Reader, stop func() error) (err error) {
	out := bufio.NewWriterSize(w, 64<<10)
	defer func() { err = errors.Join(err, out.Flush()) }()
	in := ss.NewReader(r)
	d := streamDumper{out: out, top: "."}
	for {
		switch err := in.Header(); {
		case errors.Is(err, io.EOF) && in.Offset() == 0:
			return errors.New("the stream is empty")
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		for end := false; !end; {
			if stop != nil {
				if err := stop(); err != nil {
					return err
				}
			}
			cmd, err := in.Next()
			if err != nil {
				return err
			}
			d.command(cmd)
			end = cmd.Cmd == ss.C_END
		}
	}
}

// streamDumper prints commands.
type streamDumper struct {
	out *bufio.Writer
	top string // the subvolume under way
}

// below is a path in a directory, as btrfs receive puts it together.
func below(dir, path string) string {
	return strings.TrimSuffix(dir, "/") + "/" + strings.TrimSuffix(path, "/")
}

func (d *streamDumper) command(cmd *ss.Command) {
	if cmd.Cmd == ss.C_END {
		return
	}
	path := below(d.top, cmd.Text(ss.A_PATH))
	if cmd.Cmd == ss.C_SUBVOL || cmd.Cmd == ss.C_SNAPSHOT {
		path = below(".", cmd.Text(ss.A_PATH))
		d.top = path
	}
	line := fmt.Sprintf("%-16s%s", cmd.Cmd, escaped(path))
	if rest := d.rest(cmd); rest != "" {
		line = fmt.Sprintf("%-47s %s", line, rest)
	}
	d.out.WriteString(line)
	d.out.WriteByte('\n')
}

// rest is what is after the path.
func (d *streamDumper) rest(cmd *ss.Command) string {
	num, text := cmd.Uint, cmd.Text
	switch cmd.Cmd {
	case ss.C_SUBVOL:
		return fmt.Sprintf("uuid=%v transid=%d", cmd.UUID(ss.A_UUID), num(ss.A_CTRANSID))
	case ss.C_SNAPSHOT:
		return fmt.Sprintf("uuid=%v transid=%d parent_uuid=%v parent_transid=%d", cmd.UUID(ss.A_UUID), num(ss.A_CTRANSID), cmd.UUID(ss.A_CLONE_UUID), num(ss.A_CLONE_CTRANSID))
	case ss.C_MKNOD:
		return fmt.Sprintf("mode=%o dev=0x%x", num(ss.A_MODE), num(ss.A_RDEV))
	case ss.C_SYMLINK, ss.C_LINK:
		return "dest=" + escaped(text(ss.A_PATH_LINK))
	case ss.C_CLONE: // of a file of another subvolume that, too, is the path in this one
		return fmt.Sprintf("offset=%d len=%d from=%s clone_offset=%d", num(ss.A_FILE_OFFSET), num(ss.A_CLONE_LEN), escaped(below(d.top, text(ss.A_CLONE_PATH))), num(ss.A_CLONE_OFFSET))
	case ss.C_RENAME:
		return "dest=" + escaped(below(d.top, text(ss.A_PATH_TO)))
	case ss.C_SET_XATTR:
		return fmt.Sprintf("name=%s data=%s len=%d", escaped(text(ss.A_XATTR_NAME)), escaped(text(ss.A_XATTR_DATA)), len(cmd.Bytes(ss.A_XATTR_DATA)))
	case ss.C_REMOVE_XATTR:
		return "name=" + escaped(text(ss.A_XATTR_NAME))
	case ss.C_CHMOD:
		return fmt.Sprintf("mode=%o", num(ss.A_MODE))
	case ss.C_CHOWN:
		return fmt.Sprintf("gid=%d uid=%d", num(ss.A_GID), num(ss.A_UID))
	case ss.C_UTIMES:
		return fmt.Sprintf("atime=%s mtime=%s ctime=%s", stamp(cmd.Time(ss.A_ATIME)), stamp(cmd.Time(ss.A_MTIME)), stamp(cmd.Time(ss.A_CTIME)))
	}
	return contents(cmd)
}

// contents is what is after the path of a command that changes the contents of a file.
func contents(cmd *ss.Command) string {
	num := cmd.Uint
	switch cmd.Cmd {
	case ss.C_WRITE:
		return fmt.Sprintf("offset=%d len=%d", num(ss.A_FILE_OFFSET), len(cmd.Bytes(ss.A_DATA)))
	case ss.C_TRUNCATE:
		return fmt.Sprintf("size=%d", num(ss.A_SIZE))
	case ss.C_UPDATE_EXTENT:
		return fmt.Sprintf("offset=%d len=%d", num(ss.A_FILE_OFFSET), num(ss.A_SIZE))
	case ss.C_ENCODED_WRITE:
		return fmt.Sprintf("offset=%d len=%d unencoded_file_len=%d unencoded_len=%d unencoded_offset=%d compression=%d encryption=%d",
			num(ss.A_FILE_OFFSET), len(cmd.Bytes(ss.A_DATA)), num(ss.A_UNENCODED_FILE_LEN), num(ss.A_UNENCODED_LEN),
			num(ss.A_UNENCODED_OFFSET), num(ss.A_COMPRESSION), num(ss.A_ENCRYPTION))
	case ss.C_FALLOCATE:
		return fmt.Sprintf("mode=%d offset=%d len=%d", num(ss.A_FALLOCATE_MODE), num(ss.A_FILE_OFFSET), num(ss.A_SIZE))
	case ss.C_FILEATTR:
		return fmt.Sprintf("fileattr=0x%d", num(ss.A_FILEATTR)) // decimal, with that prefix
	case ss.C_ENABLE_VERITY:
		return fmt.Sprintf("algorithm=%d block_size=%d salt_len=%d sig_len=%d", num(ss.A_VERITY_ALGORITHM), num(ss.A_VERITY_BLOCK_SIZE),
			len(cmd.Bytes(ss.A_VERITY_SALT_DATA)), len(cmd.Bytes(ss.A_VERITY_SIG_DATA)))
	}
	return ""
}

// stamp is a time in the zone of the machine.
func stamp(t format.Timespec) string { return t.Time().Format("2006-01-02T15:04:05-0700") }

// escaped is a text with what cannot be printed, spaces and backslashes escaped as in C, other
// bytes in octal.
//
// Models string_print_escape_special_len() of btrfs-progs.
func escaped(s string) string {
	const from, to = "\a\b\x1b\f\n\r\t\v \\", `abefnrtv \`
	var b strings.Builder
	for i := range len(s) {
		switch at := strings.IndexByte(from, s[i]); {
		case at >= 0:
			b.WriteByte('\\')
			b.WriteByte(to[at])
		case s[i] < ' ' || s[i] > '~':
			fmt.Fprintf(&b, "\\%03o", s[i])
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String()
}
