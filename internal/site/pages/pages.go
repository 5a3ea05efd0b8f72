// Package pages writes the site: one page with its style, its scripts and the warm-up levels, which
// can be played at once, and beside it, as scripts, the catalog of what can be chosen and the
// program, because a browser loads a script from a file but not a WebAssembly module. The program
// is packed and in pieces, so that the page can show how much of it has come. Nothing is fetched
// after that.
package pages

import (
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"btrlab/internal/draw"
	"btrlab/internal/site"
)

//go:embed index.html style.css app.js walk.js worker.js
var files embed.FS

// Parts are what the site is made of and does not come with this package.
type Parts struct {
	Wasm     []byte // the program, cmd/btrlab-web for js/wasm
	WasmExec []byte // lib/wasm/wasm_exec.js of the Go that compiled it
}

// Page is the file of the page.
const Page = "index.html"

// catalogFile is the file of the catalog: what can be chosen, which comes before the program.
const catalogFile = "catalog.js"

// piece is the file of a piece of the program.
const piece = "btrlab.wasm.%02d.js"

// pieceBytes is the packed bytes of a piece.
const pieceBytes = 256 << 10

// Write writes the site into the folder dir, and returns the bytes that a browser loads.
func Write(dir string, p Parts) (int, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, err
	}
	program, err := packed(p.Wasm)
	if err != nil {
		return 0, err
	}
	page, err := p.page(len(program))
	if err != nil {
		return 0, err
	}
	list, err := catalog()
	if err != nil {
		return 0, err
	}
	if err := os.WriteFile(filepath.Join(dir, catalogFile), list, 0o644); err != nil {
		return 0, err
	}
	n := len(page) + len(list)
	for i, b := range program {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf(piece, i)), b, 0o644); err != nil {
			return 0, err
		}
		n += len(b)
	}
	return n, os.WriteFile(filepath.Join(dir, Page), page, 0o644)
}

// digits are those of Z85 (ZeroMQ RFC 32): none ends a string of a script. Five of them are four
// bytes, where base64 needs five and a third.
const digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"

// text is b in digits; the first says how many bytes were added at the end. worker.js reads it.
func text(b []byte) string {
	pad := -len(b) & 3
	b = append(b, 0, 0, 0)[:len(b)+pad]
	out := make([]byte, 1, 1+len(b)/4*5)
	out[0] = digits[pad]
	for ; len(b) > 0; b = b[4:] {
		v := binary.BigEndian.Uint32(b)
		for div := uint32(85 * 85 * 85 * 85); div > 0; div /= 85 {
			out = append(out, digits[v/div%85])
		}
	}
	return string(out)
}

// packed is the program as scripts: gzip, cut, then text.
func packed(wasm []byte) (pieces [][]byte, err error) {
	z, err := zipped(wasm)
	if err != nil {
		return nil, err
	}
	for b := range slices.Chunk(z, pieceBytes) {
		pieces = append(pieces, []byte(`btrlabWasm("`+text(slices.Clone(b))+"\");\n"))
	}
	return pieces, nil
}

// catalog is what can be chosen, as a script, packed as the program is.
func catalog() ([]byte, error) {
	var d site.Desk
	list, err := d.Ask("catalog", []byte("{}"))
	if err != nil {
		return nil, err
	}
	z, err := zipped(list)
	return []byte(`btrlabCatalog("` + text(z) + "\");\n"), err
}

func zipped(b []byte) ([]byte, error) {
	var z bytes.Buffer
	w, err := gzip.NewWriterLevel(&z, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(b); err != nil {
		return nil, err
	}
	err = w.Close()
	return z.Bytes(), err
}

// page is index.html with its parts in their places.
func (p *Parts) page(pieces int) ([]byte, error) {
	numbers, err := measured()
	if err != nil {
		return nil, err
	}
	graphs, err := site.Graphs()
	if err != nil {
		return nil, err
	}
	played, err := json.Marshal(graphs) // it escapes <, > and &
	if err != nil {
		return nil, err
	}
	parts := []string{"{{wasm_exec.js}}", string(p.WasmExec), "{{levels}}", string(played), "{{pieces}}", fmt.Sprint(pieces), "{{bytes}}", fmt.Sprint(len(p.Wasm)),
		"{{measured}}", string(numbers), "{{palette.css}}", draw.Palette, "{{plot.css}}", draw.PlotCSS}
	for _, name := range []string{"style.css", "app.js", "walk.js", "worker.js"} {
		b, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		parts = append(parts, "{{"+name+"}}", string(b))
	}
	for i := 1; i < len(parts); i += 2 {
		if strings.Contains(parts[i], "</script") {
			return nil, fmt.Errorf("bad part %s, have </script in it", parts[i-1])
		}
	}
	index, err := files.ReadFile(Page)
	if err != nil {
		return nil, err
	}
	return []byte(strings.NewReplacer(parts...).Replace(string(index))), nil
}
