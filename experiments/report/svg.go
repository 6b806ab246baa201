package report

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
)

// svg is markup that this package made; text in it is escaped.
type svg string

// Sizes of plots, in units of their view box.
const (
	plotWidth  = 640.0
	plotHeight = 300.0
	leftEdge   = 56.0
	rightEdge  = 12.0
	topEdge    = 10.0
	bottomEdge = 40.0
	legendLine = 16.0
	lineHeight = 18.0
	nameWidth  = 240.0
)

// colours is the number of series that the style sheet has colours for; more begin
// again, dashed.
const colours = 8

// drawing is an SVG in the making.
type drawing struct {
	b      strings.Builder
	height float64
}

// text writes a text; anchor is start, middle or end.
func (d *drawing) text(x, y float64, anchor, class, s string) {
	fmt.Fprintf(&d.b, `<text x="%s" y="%s" text-anchor="%s" class="%s">%s</text>`, num(x), num(y), anchor, class, html.EscapeString(s))
}

func (d *drawing) line(x1, y1, x2, y2 float64, class string) {
	fmt.Fprintf(&d.b, `<line x1="%s" y1="%s" x2="%s" y2="%s" class="%s"/>`, num(x1), num(y1), num(x2), num(y2), class)
}

// finish closes the drawing; what says what it shows, for those who can't see it.
func (d *drawing) finish(what string) svg {
	return svg(fmt.Sprintf(`<svg viewBox="0 0 %s %s" role="img" aria-label="%s">%s</svg>`, num(plotWidth), num(d.height), html.EscapeString(what), d.b.String()))
}

func num(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }

// series is the class of series i.
func series(i int) string {
	class := fmt.Sprintf("s%d", i%colours)
	if i >= colours {
		class += " more"
	}
	return class
}

// short is a figure for people: three digits that say something.
func short(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) }

// scale maps values to places.
type scale struct{ low, high, from, to float64 }

func (s scale) at(v float64) float64 {
	if s.high == s.low {
		return (s.from + s.to) / 2
	}
	return s.from + (v-s.low)/(s.high-s.low)*(s.to-s.from)
}

// ticks are round numbers over the scale.
func (s scale) ticks(whole bool) (out []float64) {
	span := s.high - s.low
	if span <= 0 || math.IsInf(span, 0) || math.IsNaN(span) {
		return []float64{s.low}
	}
	step := math.Pow(10, math.Floor(math.Log10(span/4)))
	for _, m := range []float64{1, 2, 5, 10} {
		if span/(step*m) <= 6 {
			step *= m
			break
		}
	}
	if whole {
		step = max(1, math.Round(step))
	}
	for v := math.Ceil(s.low/step) * step; v <= s.high+step*1e-9 && len(out) < 20; v += step {
		out = append(out, v)
	}
	return out
}

// point is a point of a line or cloud; told is shown when it is pointed at.
type point struct {
	x, y float64
	told string
}

// line is a series; dots leaves the line out.
type line struct {
	name   string
	points []point
	dots   bool
}

// band is a span of x that is marked.
type band struct {
	from, to float64
	name     string
}

// chart is lines and clouds over two axes. low and high are values that the y axis
// has at least.
type chart struct {
	x, y      string
	low, high float64
	wholeX    bool
	fromZero  bool // the x axis begins at 0
	lines     []line
	bands     []band
}

// bounds are the least and the largest values.
func (c *chart) bounds() (x, y scale, any bool) {
	x = scale{low: math.Inf(1), high: math.Inf(-1), from: leftEdge, to: plotWidth - rightEdge}
	y = scale{low: c.low, high: c.high, from: plotHeight - bottomEdge, to: topEdge}
	for _, l := range c.lines {
		for _, p := range l.points {
			x.low, x.high = min(x.low, p.x), max(x.high, p.x)
			y.low, y.high = min(y.low, p.y), max(y.high, p.y)
			any = true
		}
	}
	for _, b := range c.bands {
		x.low, x.high = min(x.low, b.from), max(x.high, b.to)
	}
	if c.fromZero {
		x.low = min(0, x.low)
	}
	if y.high == y.low {
		y.high = y.low + 1
	}
	if x.high == x.low {
		x.low, x.high = x.low-0.5, x.high+0.5
	}
	return x, y, any
}

// draw draws the chart with its legend.
func (c *chart) draw() svg {
	d := &drawing{height: plotHeight + legendLine*float64((len(c.lines)+1)/2)}
	x, y, any := c.bounds()
	if !any {
		d.height = 40
		d.text(plotWidth/2, 24, "middle", "t", "there is nothing to show")
		return d.finish(c.y)
	}
	for _, b := range c.bands {
		fmt.Fprintf(&d.b, `<rect x="%s" y="%s" width="%s" height="%s" class="band"><title>%s</title></rect>`,
			num(x.at(b.from)), num(y.to), num(x.at(b.to)-x.at(b.from)), num(y.from-y.to), html.EscapeString(b.name))
	}
	for _, v := range y.ticks(false) {
		d.line(x.from, y.at(v), x.to, y.at(v), "grid")
		d.text(x.from-6, y.at(v)+4, "end", "t", short(v))
	}
	for _, v := range x.ticks(c.wholeX) {
		d.line(x.at(v), y.from, x.at(v), y.from+4, "axis")
		d.text(x.at(v), y.from+17, "middle", "t", short(v))
	}
	d.line(x.from, y.from, x.to, y.from, "axis")
	d.text((x.from+x.to)/2, y.from+33, "middle", "t", c.x)
	fmt.Fprintf(&d.b, `<text transform="translate(12 %s) rotate(-90)" text-anchor="middle" class="t">%s</text>`, num((y.from+y.to)/2), html.EscapeString(c.y))
	for i, l := range c.lines {
		c.series(d, i, l, x, y)
	}
	return d.finish(c.y + " over " + c.x)
}

// series draws one line with its entry in the legend.
func (c *chart) series(d *drawing, i int, l line, x, y scale) {
	class := series(i)
	if !l.dots && len(l.points) > 1 {
		var places []string
		for _, p := range l.points {
			places = append(places, num(x.at(p.x))+","+num(y.at(p.y)))
		}
		fmt.Fprintf(&d.b, `<polyline points="%s" class="line %s"/>`, strings.Join(places, " "), class)
	}
	for _, p := range l.points {
		told := p.told
		if told == "" {
			told = fmt.Sprintf("%s: %s at %s", l.name, short(p.y), short(p.x))
		}
		fmt.Fprintf(&d.b, `<circle cx="%s" cy="%s" r="3" class="dot %s"><title>%s</title></circle>`, num(x.at(p.x)), num(y.at(p.y)), class, html.EscapeString(told))
	}
	lx, ly := leftEdge+float64(i%2)*(plotWidth-leftEdge)/2, plotHeight+legendLine*float64(i/2)+8
	fmt.Fprintf(&d.b, `<circle cx="%s" cy="%s" r="4" class="dot %s"/>`, num(lx), num(ly-4), class)
	d.text(lx+9, ly, "start", "t", clipped(l.name, 44))
}

// clipped is a name of at most n characters.
func clipped(name string, n int) string {
	if r := []rune(name); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return name
}

// bar is a bar with its name.
type bar struct {
	name  string
	value float64
	loud  bool
}

// drawBars draws bars with a line at mark.
func drawBars(bars []bar, mark float64) svg {
	d := &drawing{height: lineHeight*float64(len(bars)) + 12}
	x := scale{high: mark * 1.1, from: nameWidth, to: plotWidth - 50}
	for _, b := range bars {
		x.high = max(x.high, b.value)
	}
	for i, b := range bars {
		class := "bar"
		if b.loud {
			class = "bar loud"
		}
		top := lineHeight*float64(i) + 4
		d.text(nameWidth-6, top+11, "end", "t", clipped(b.name, 38))
		fmt.Fprintf(&d.b, `<rect x="%s" y="%s" width="%s" height="%s" class="%s"><title>%s</title></rect>`,
			num(x.from), num(top), num(x.at(b.value)-x.from), num(lineHeight-4), class, html.EscapeString(b.name+": "+short(b.value)))
		d.text(x.at(b.value)+4, top+11, "start", "t", fmt.Sprintf("%.2f", b.value))
	}
	d.line(x.at(mark), 2, x.at(mark), d.height-6, "mark")
	return d.finish("bars")
}

// heatRow is a line of a heat map: shares of 0 to 1.
type heatRow struct {
	name   string
	shares []float64
}

// heatMap is shares by row and column.
type heatMap struct {
	x    string
	rows []heatRow
}

// draw draws the map: the darker, the larger, with the number in each cell.
func (m *heatMap) draw() svg {
	most := 1
	for _, r := range m.rows {
		most = max(most, len(r.shares))
	}
	d := &drawing{height: lineHeight*float64(len(m.rows)) + 36}
	width := min(60, (plotWidth-nameWidth-4)/float64(most))
	for i, r := range m.rows {
		top := lineHeight * float64(i)
		d.text(nameWidth-6, top+13, "end", "t", clipped(r.name, 38))
		for j, v := range r.shares {
			left := nameWidth + width*float64(j)
			fmt.Fprintf(&d.b, `<rect x="%s" y="%s" width="%s" height="%s" class="heat" fill-opacity="%s"><title>%s, position %d: %.3f</title></rect>`,
				num(left), num(top+1), num(width-1), num(lineHeight-2), num(min(1, max(0, v))), html.EscapeString(r.name), j+1, v)
			if width >= 26 {
				d.text(left+width/2, top+13, "middle", "cell", fmt.Sprintf("%.2f", v))
			}
		}
	}
	bottom := lineHeight*float64(len(m.rows)) + 14
	for j := range most {
		if width >= 26 || j%5 == 0 {
			d.text(nameWidth+width*(float64(j)+0.5), bottom, "middle", "t", strconv.Itoa(j+1))
		}
	}
	d.text(nameWidth, bottom+16, "start", "t", m.x)
	return d.finish("heat map over " + m.x)
}
