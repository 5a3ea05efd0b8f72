// Package pages writes the site: one page with its style and scripts, and beside it the program,
// packed as a script, because a browser loads a script from a file but not a WebAssembly module.
// Nothing is fetched after that.
package pages

import (
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"btrlab/internal/draw"
)

//go:embed index.html style.css app.js worker.js
var files embed.FS

// Parts are what the site is made of and does not come with this package.
type Parts struct {
	Wasm     []byte // the program, cmd/btrlab-web for js/wasm
	WasmExec []byte // lib/wasm/wasm_exec.js of the Go that compiled it
}

// The files of the site.
const (
	Page    = "index.html"
	Program = "btrlab.wasm.js"
)

// Write writes the site into the folder dir, and returns the bytes that a browser loads.
func Write(dir string, p Parts) (int, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, err
	}
	page, err := p.page()
	if err != nil {
		return 0, err
	}
	program, err := packed(p.Wasm)
	if err != nil {
		return 0, err
	}
	if err := os.WriteFile(filepath.Join(dir, Program), program, 0o644); err != nil {
		return 0, err
	}
	return len(page) + len(program), os.WriteFile(filepath.Join(dir, Page), page, 0o644)
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

// packed is the program as a script: gzip, then text.
func packed(wasm []byte) ([]byte, error) {
	var z bytes.Buffer
	w, err := gzip.NewWriterLevel(&z, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(wasm); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return []byte(`btrlabWasm("` + text(z.Bytes()) + "\");\n"), nil
}

// page is index.html with its parts in their places.
func (p *Parts) page() ([]byte, error) {
	numbers, err := measured()
	if err != nil {
		return nil, err
	}
	parts := []string{"{{wasm_exec.js}}", string(p.WasmExec), "{{measured}}", string(numbers), "{{palette.css}}", draw.Palette, "{{plot.css}}", draw.PlotCSS}
	for _, name := range []string{"style.css", "app.js", "worker.js"} {
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
