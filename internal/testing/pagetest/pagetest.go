// Package pagetest is what the tests of pages and pictures share.
package pagetest

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

// WellFormedHTML fails the test where page is not well formed: a browser mends what a reader does
// not see. The pages of this project are written so that a reader of XML takes them, but for
// entities and the tags that HTML does not close.
func WellFormedHTML(t testing.TB, page string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(page))
	d.Strict, d.AutoClose, d.Entity = false, []string{"meta", "img", "br"}, xml.HTMLEntity
	wellFormed(t, d, page)
}

// WellFormedXML is WellFormedHTML for XML, such as a picture.
func WellFormedXML(t testing.TB, text string) {
	t.Helper()
	wellFormed(t, xml.NewDecoder(strings.NewReader(text)), text)
}

func wellFormed(t testing.TB, d *xml.Decoder, text string) {
	t.Helper()
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			at := min(int(d.InputOffset()), len(text))
			t.Fatalf("%v: ...%s", err, text[max(0, at-80):at])
		}
	}
}
