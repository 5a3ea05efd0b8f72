package packed

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"btrlab/internal/study/handout"
)

// TestFiles: what was packed comes out, with its names and modes; a program without labs says so.
func TestFiles(t *testing.T) {
	was := zipped
	defer func() { zipped = was }()
	want := []handout.File{{Path: "go.mod", Data: []byte("module x\n")}, {Path: "labs/a.sh", Exec: true, Data: []byte("#!/bin/sh\n")}}
	var b bytes.Buffer
	if err := handout.WriteZip(&b, handout.ZipFolder, want); err != nil {
		t.Fatal(err)
	}
	zipped = b.Bytes()
	if have, err := Files(); err != nil || !reflect.DeepEqual(have, want) {
		t.Errorf("%+v, %v", have, err)
	}
	zipped = zipped[:len(zipped)-9]
	if _, err := Files(); err == nil || errors.Is(err, ErrNone) {
		t.Errorf("a zip that is cut: %v", err)
	}
	zipped = nil
	if _, err := Files(); !errors.Is(err, ErrNone) {
		t.Errorf("none: %v", err)
	}
}
