//go:build unix

package transfer

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"

	ss "btrlab/internal/sendstream"
	"btrlab/internal/testing/fstest"
)

// rightSums gives the commands of a stream the checksums that they should have; the last one is as
// long as the bytes that are left.
func rightSums(b []byte) []byte {
	b = bytes.Clone(b)
	table := crc32.MakeTable(crc32.Castagnoli)
	for at := 17; at+10 <= len(b); {
		n := min(int(binary.LittleEndian.Uint32(b[at:])), len(b)-at-10)
		binary.LittleEndian.PutUint32(b[at:], uint32(n))
		clear(b[at+6 : at+10])
		binary.LittleEndian.PutUint32(b[at+6:], ^crc32.Update(^uint32(0), table, b[at:at+10+n]))
		at += 10 + n
	}
	return b
}

// A stream with right checksums may say anything: it is received, or it is an error; the image is
// clean, and without END it is as before.
func FuzzReceive(f *testing.F) {
	for _, name := range []string{"full-v1", "full-v2"} {
		b := linuxStream(f, name)
		f.Add(b[:min(len(b), 3000)])
	}
	f.Add(stream(func(w *ss.Writer) {
		begin(w, "s")
		command(w, ss.C_MKFILE, ss.A_PATH, "f")
		command(w, ss.C_WRITE, ss.A_PATH, "f", ss.A_FILE_OFFSET, 4096, ss.A_DATA, "data")
		command(w, ss.C_CLONE, ss.A_PATH, "f", ss.A_FILE_OFFSET, 8192, ss.A_CLONE_LEN, 4096, ss.A_CLONE_UUID, sentUUID, ss.A_CLONE_CTRANSID, 7, ss.A_CLONE_PATH, "f", ss.A_CLONE_OFFSET, 0)
		command(w, ss.C_FALLOCATE, ss.A_PATH, "f", ss.A_FALLOCATE_MODE, 0, ss.A_FILE_OFFSET, 0, ss.A_SIZE, 100000)
		command(w, ss.C_TRUNCATE, ss.A_PATH, "f", ss.A_SIZE, 5000)
		command(w, ss.C_MKDIR, ss.A_PATH, "d")
		command(w, ss.C_RENAME, ss.A_PATH, "f", ss.A_PATH_TO, "d/f")
		command(w, ss.C_LINK, ss.A_PATH, "f", ss.A_PATH_LINK, "d/f")
		command(w, ss.C_MKNOD, ss.A_PATH, "n", ss.A_MODE, 0o20644, ss.A_RDEV, 259)
		command(w, ss.C_CHOWN, ss.A_PATH, "n", ss.A_UID, 1, ss.A_GID, 2)
		command(w, ss.C_CHMOD, ss.A_PATH, "d", ss.A_MODE, 0o2755)
		w.Begin(ss.C_UTIMES).Text(ss.A_PATH, "d").Bytes(ss.A_ATIME, make([]byte, 12)).Bytes(ss.A_MTIME, bytes.Repeat([]byte{255}, 12))
		fstest.NoError(w.End())
		command(w, ss.C_ENCODED_WRITE, ss.A_PATH, "f", ss.A_FILE_OFFSET, 0, ss.A_UNENCODED_FILE_LEN, 3, ss.A_UNENCODED_LEN, 4, ss.A_UNENCODED_OFFSET, 1, ss.A_DATA, "abcd")
		command(w, ss.C_UNLINK, ss.A_PATH, "f")
		command(w, ss.C_END)
	}))
	f.Fuzz(func(t *testing.T, b []byte) {
		x := fstest.New(t, fstest.Size(64<<20))
		before := state(x)
		err := Receive(x.T, x.FS, quiet{}, bytes.NewReader(rightSums(b)), "/")
		if list, lerr := x.FS.ReadDir(x.T, "/"); err != nil && lerr == nil && len(list) == 0 && state(x) != before {
			t.Errorf("have %s\nwant %s", state(x), before)
		}
	})
}
