package jobs

import (
	"encoding/json"
	"fmt"
	"hash/crc64"
	"io/fs"
	"os"
	"path/filepath"

	"btrlab/internal/judge/kernels"
)

// Manifest is what a folder holds: of each path below it the size and the sum of a file, the target
// of a symbolic link, or "dir".
func Manifest(dir string) (map[string]string, error) {
	list := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		switch d.Type() {
		case fs.ModeDir:
			list[name] = "dir"
		case fs.ModeSymlink:
			list[name], err = os.Readlink(path)
		case 0:
			var b []byte
			b, err = os.ReadFile(path)
			list[name] = Sum(b)
		default:
			list[name] = d.Type().String()
		}
		return err
	})
	return list, err
}

// Sum is a file's entry in a Manifest: its size, and a checksum that an emulated processor computes
// fast enough.
func Sum(b []byte) string { return fmt.Sprintf("%d %016x", len(b), crc64.Checksum(b, sums)) }

var sums = crc64.MakeTable(crc64.ECMA)

// writeOut writes a value as a JSON file that the host gets.
func writeOut(name string, value any) error {
	b, err := json.MarshalIndent(value, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(kernels.Out, name), b, 0o644)
}
