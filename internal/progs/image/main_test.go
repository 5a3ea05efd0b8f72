package image_test

import (
	"fmt"
	"os"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/image"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

var task = sched.NewTask("test")

// whole are devices of file systems, by name.
func whole(t *testing.T) map[string][]blockdev.Device {
	t.Helper()
	return fstest.Samples(t, task, "../..", func(p *format.Profile, n int) []blockdev.Device {
		x := fstest.New(t, fstest.Devices(n), fstest.Size(128<<20), fstest.NoCheck(), fstest.MkfsOptions(func(o *mkfs.Options) {
			o.DataProfile, o.MetadataProfile = p.Name, p.Name
		}))
		for i := range 40 {
			f := x.Create(fmt.Sprintf("/file%d", i))
			data := make([]byte, 30000*(i%8)+500)
			fstest.Stamp(data, uint64(i))
			x.WriteAt(f, data, 0)
			f.Close(x.T)
		}
		x.Close()
		return append([]blockdev.Device{x.Dev}, x.More...)
	})
}

func open(t *testing.T, devs []blockdev.Device) *image.Image {
	t.Helper()
	im, err := image.Open(task, devs[0], devs[1:]...)
	if err != nil {
		t.Fatal(err)
	}
	return im
}

// roots are where all trees of an image begin, the logs too.
func roots(t *testing.T, im *image.Image) []image.Ref {
	t.Helper()
	list := []image.Ref{im.RootTree(), im.ChunkTree()}
	items, err := im.Roots()
	if err != nil {
		t.Fatal(err)
	}
	for i := range items {
		list = append(list, items[i].Ref())
	}
	if im.SB.LogRoot != 0 {
		list = append(list, im.LogTree())
		err = im.Each(im.LogTree(), func(k format.Key, b []byte) {
			if k.Type == format.ROOT_ITEM_KEY {
				r := image.Root{Key: k}
				r.Item.Decode(b)
				r.Key.Objectid = format.TREE_LOG_OBJECTID
				list = append(list, r.Ref())
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return list
}
