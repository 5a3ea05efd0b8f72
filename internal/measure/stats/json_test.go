package stats

import (
	"reflect"
	"testing"
)

// TestOptionsOnce: no key stands twice in an object, whatever a section has twice.
func TestOptionsOnce(t *testing.T) {
	have := optionObject([]Option{{"filename", "a"}, {"bs", "4k"}, {"direct", ""}, {"filename", "b"}, {"bs", "8k"}})
	if want := (object{{"filename", "a:b"}, {"bs", "8k"}}); !reflect.DeepEqual(have, want) {
		t.Errorf("have %v want %v", have, want)
	}
}
