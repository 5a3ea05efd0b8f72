package nb

import (
	"errors"
	"fmt"
	r "reflect"

	"btrlab/internal/prose"
)

// Cells are Binds for cells, as package btrlab/lab: a function that can fail has no error among its
// results. Where it fails the cell ends with the error's text, and so does the notebook.
func Cells() map[string]r.Value {
	out := map[string]r.Value{}
	for name, f := range Binds() {
		out[name] = withoutError(f)
	}
	return out
}

func withoutError(f r.Value) r.Value {
	if f.Kind() != r.Func {
		return f
	}
	t := f.Type()
	last := t.NumOut() - 1
	if last < 0 || t.Out(last) != r.TypeFor[error]() {
		return f
	}
	var in, out []r.Type
	for i := range t.NumIn() {
		in = append(in, t.In(i))
	}
	for i := range last {
		out = append(out, t.Out(i))
	}
	call := f.Call
	if t.IsVariadic() {
		call = f.CallSlice
	}
	return r.MakeFunc(r.FuncOf(in, out, t.IsVariadic()), func(args []r.Value) []r.Value {
		res := call(args)
		if err, ok := res[last].Interface().(error); ok {
			panic(err)
		}
		return res[:last]
	})
}

// Draw is the picture that a method makes, as in lab.Draw(comparison.Ratios). If there is none the
// cell ends with the reason.
func Draw(picture func() (Figure, error)) Figure {
	f, err := picture()
	if err != nil {
		panic(err)
	}
	return f
}

// Expect is says if all facts hold. Otherwise the cell ends, and says which do not: the text around
// it would be wrong.
func Expect(says string, facts ...bool) string {
	var wrong []string
	for i, ok := range facts {
		if !ok {
			wrong = append(wrong, fmt.Sprint(i+1))
		}
	}
	if len(wrong) > 0 {
		panic(errors.New("not as the text says; see the tables: of the facts in this cell, not: " + prose.List(wrong)))
	}
	return says
}
