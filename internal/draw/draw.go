// Package draw makes the pages and pictures that btrlab writes. A page needs nothing else: no
// network, no library. Palette, dark mode and print are style sheets here, and so is the look of a
// policy in every picture.
package draw

import (
	_ "embed"
	"fmt"
	"html"
	"io"
	"strings"
)

// HTML is text that is markup already: of HTML, or of SVG.
type HTML string

// Escape is text as markup.
func Escape(text string) HTML { return HTML(html.EscapeString(text)) }

// Writer writes markup.
type Writer struct{ strings.Builder }

// Add adds a line. Strings among the arguments are text and get escaped; HTML does not.
func (w *Writer) Add(format string, args ...any) {
	for i, a := range args {
		if s, ok := a.(string); ok {
			args[i] = html.EscapeString(s)
		}
	}
	fmt.Fprintf(w, format+"\n", args...)
}

// HTML returns the markup written so far.
func (w *Writer) HTML() HTML { return HTML(w.String()) }

// Palette is the colours by their names, PlotCSS the look of pictures and tables, and PageCSS that
// of a page around them.
var (
	//go:embed palette.css
	Palette string
	//go:embed plot.css
	PlotCSS string
	//go:embed page.css
	PageCSS string
)

// Light is css with the palette's light colours in the places of their names, for a picture that
// has no page around it.
func Light(css string) string {
	root, _, _ := strings.Cut(Palette, "}")
	_, root, _ = strings.Cut(root, "{")
	var fill []string
	for _, def := range strings.Split(root, ";") {
		if name, value, ok := strings.Cut(strings.TrimSpace(def), ": "); ok {
			fill = append(fill, "var("+name+")", value)
		}
	}
	return strings.NewReplacer(fill...).Replace(css)
}

// Page is a page around a body.
type Page struct {
	Title string
	Head  HTML   // further elements of the head
	Style string // rules after the palette
}

// Write writes the page. Its style is the palette and then Style.
func (p *Page) Write(w io.Writer, body HTML) error {
	var b Writer
	b.Add(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">%s
<title>%s</title>
<style>
%s</style>
</head>
<body>
%s</body>
</html>`, p.Head, p.Title, HTML(Palette+p.Style), body)
	_, err := io.WriteString(w, b.String())
	return err
}

// Report is the style of a page that reports measurements, with further rules.
func Report(more string) string { return PlotCSS + PageCSS + more }

// Words is a cell of a table that holds a sentence and not a figure.
type Words string

func cell(a any) HTML {
	if h, ok := a.(HTML); ok {
		return h
	}
	return Escape(fmt.Sprint(a))
}

// BeginTable begins a table with these heads. The caption may be empty.
func (w *Writer) BeginTable(caption string, heads ...any) {
	w.WriteString("<div class=\"wide\"><table>\n")
	if caption != "" {
		w.Add("<caption>%s</caption>", caption)
	}
	w.WriteString("<thead><tr>")
	for _, h := range heads {
		fmt.Fprintf(w, `<th scope="col">%s</th>`, cell(h))
	}
	w.WriteString("</tr></thead>\n<tbody>")
}

// Row adds a row to the table, whose first cell is its head: each is text, HTML or Words.
func (w *Writer) Row(cells ...any) { w.row("<tr>", cells) }

// BaseRow adds a row that others are compared with.
func (w *Writer) BaseRow(cells ...any) { w.row(`<tr class="base">`, cells) }

func (w *Writer) row(tr string, cells []any) {
	fmt.Fprintf(w, `%s<th scope="row">%s</th>`, tr, cell(cells[0]))
	for _, c := range cells[1:] {
		if _, ok := c.(Words); ok {
			fmt.Fprintf(w, `<td class="text">%s</td>`, cell(c))
			continue
		}
		fmt.Fprintf(w, "<td>%s</td>", cell(c))
	}
	w.WriteString("</tr>\n")
}

// EndTable ends the table.
func (w *Writer) EndTable() { w.WriteString("</tbody></table></div>\n") }

// Table is a table of text, the first row its head.
func (w *Writer) Table(rows [][]string) {
	for i, row := range rows {
		if i == 0 {
			w.BeginTable("", Cells(row)...)
			continue
		}
		w.Row(Cells(row)...)
	}
	w.EndTable()
}

// Cells are the cells of a row of text, to which others may be added.
func Cells(texts []string) (cells []any) {
	for _, t := range texts {
		cells = append(cells, t)
	}
	return cells
}

// Heads are names as the heads of columns, which may be broken after an underscore.
func Heads(names []string) (cells []any) {
	for _, n := range names {
		cells = append(cells, HTML(strings.ReplaceAll(html.EscapeString(n), "_", "_<wbr>")))
	}
	return cells
}

// List is a list of texts; none is no list.
func (w *Writer) List(items []string) {
	if len(items) == 0 {
		return
	}
	w.WriteString("<ul>")
	for _, s := range items {
		fmt.Fprintf(w, "<li>%s</li>", Escape(s))
	}
	w.WriteString("</ul>\n")
}

// Figure is a picture with a sentence below it, and a key between them if there is one.
func (w *Writer) Figure(picture, key HTML, caption string) {
	w.Add("<figure><div class=\"wide\">%s</div>%s\n<figcaption>%s</figcaption></figure>", picture, key, caption)
}

// Picture begins a picture in SVG of so many pixels, without a script. Its words are the browser's,
// in the colours of the page around it; alt is read where the picture cannot be seen. Classes: text
// is ink, or soft; grid and line are rules, halo a rule's edge; curve is a line of a row, mark a
// symbol.
func (w *Writer) Picture(width, height int, alt string) { w.begin("plot", width, height, alt) }

// BroadPicture and NarrowPicture begin the same picture twice, for a wide window and for a narrow
// one: of the two, one is shown.
func (w *Writer) BroadPicture(width, height int, alt string) {
	w.begin("plot broad", width, height, alt)
}

// NarrowPicture is described at BroadPicture.
func (w *Writer) NarrowPicture(width, height int, alt string) {
	w.begin("plot narrow", width, height, alt)
}

// WidePicture begins one as wide as the page.
func (w *Writer) WidePicture(width, height int, alt string) { w.begin("plot full", width, height, alt) }

func (w *Writer) begin(class string, width, height int, alt string) {
	w.Add(`<svg class="%s" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="%s">`, class, width, height, alt)
}

// End ends a picture and returns it.
func (w *Writer) End() HTML { return w.HTML() + "</svg>" }

const (
	Width  = 640 // of a picture beside text
	Narrow = 340 // of one for a narrow window
	Letter = 7.2 // width of a character of 12 px, and a little more
)
