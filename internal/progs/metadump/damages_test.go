package metadump_test

import (
	"bytes"
	"testing"

	"btrlab/internal/progs/check"
	"btrlab/internal/progs/image"
	"btrlab/internal/progs/metadump"
	"btrlab/internal/testing/damaged"
)

// otherwise are the damages of which a dump has no trace, or another one: what is wrong with data,
// with one copy of a block or with a copy of the superblock; a block that is not whole is left out;
// btrfs-image -r takes the size of the device from the superblock, so that the file has it.
var otherwise = map[string]string{
	"copy is garbage": "", "copy says other label": "", "one copy of a block bad": "", "copies differ, both whole": "", "data rotten": "", "checksum wrong": "",
	"symbolic link longer than its target, not by a NUL": "",
	"block of another place":                             "tree.csum tree.read",
	"super dev_item":                                     "dev.item super.dev_item",
}

// TestDamages: what is wrong with the metadata of a file system is wrong with what is restored of
// its dump, and no more.
func TestDamages(t *testing.T) {
	base := damaged.NewImage(t)
	tried := 0
	for _, d := range append(damaged.EachRule(base), damaged.ByOne(base)...) {
		m := base.Clone(t)
		d.Do(m)
		im, err := image.Open(task, m.Dev)
		if err != nil {
			continue // btrfs-image does not open it either
		}
		want, ok := otherwise[d.Name]
		if !ok {
			want = d.Rules
		}
		var b bytes.Buffer
		if _, err := metadump.Create(im, &b, metadump.CreateOptions{}); err != nil {
			t.Errorf("%s: %v", d.Name, err)
			continue
		}
		devs, err := restore(b.Bytes(), metadump.OneDevice)
		if d.Name == "chunk overlaps" {
			if err == nil {
				t.Errorf("%s: no error", d.Name)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", d.Name, err)
			continue
		}
		r, err := check.Check(task, devs[0], check.Options{})
		if have := damaged.Rules(r); err != nil || have != "["+want+"]" {
			t.Errorf("%s: %v, have %s want [%s]", d.Name, err, have, want)
		}
		tried++
	}
	if tried < 100 {
		t.Errorf("%d damages, want most of them", tried)
	}
}
