package report

import (
	"bufio"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/csv"
	"fmt"
	"html/template"
	"io"
	"strings"
	"unicode"
)

//go:embed style.css
var style string

//go:embed script.js
var script string

//go:embed page.html
var page string

var body = template.Must(template.New("page").Funcs(template.FuncMap{
	"markup": func(s svg) template.HTML { return template.HTML(s) }, // its texts are escaped
}).Parse(page))

// HTML writes the report as a page that needs nothing beside it.
func (r *Report) HTML(out io.Writer) error {
	w := bufio.NewWriter(out)
	hash := func(s string) string {
		sum := sha256.Sum256([]byte(s))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	fmt.Fprintf(w, `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src %s; script-src %s; base-uri 'none'; form-action 'none'">
<title>exacta report</title>
<style>%s</style></head><body>
`, hash(style), hash(script), style)
	if err := body.Execute(w, r); err != nil {
		return err
	}
	fmt.Fprintf(w, "<script>%s</script>\n</body></html>\n", script)
	return w.Flush()
}

// CSV writes every figure of every table as a line: run, table, line (from 1),
// column, value. A text that a spreadsheet would take for a formula has an
// apostrophe before it.
func (r *Report) CSV(out io.Writer) error {
	w := csv.NewWriter(out)
	rows := [][]string{{"run", "table", "line", "column", "value"}}
	for _, run := range r.Runs {
		for _, t := range run.Tables {
			for i, cells := range t.Rows {
				for j, c := range cells {
					value := c.Text
					if !c.Is {
						value = harmless(value)
					}
					rows = append(rows, []string{harmless(run.Name), t.Title, fmt.Sprint(i + 1), t.Columns[j], value})
				}
			}
		}
	}
	return w.WriteAll(rows)
}

// harmless keeps a spreadsheet from running a text.
func harmless(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return "'" + s
	}
	return s
}

// Markdown writes the report's stamps, verdicts and tables.
func (r *Report) Markdown(out io.Writer) error {
	w := bufio.NewWriter(out)
	fmt.Fprint(w, "# exacta report\n")
	for _, run := range r.Runs {
		fmt.Fprintf(w, "\n## %s\n\n%s in %s\n\n", escape(run.Name), run.Kind, escape(run.Dir))
		for _, s := range run.Stamps {
			fmt.Fprintf(w, "- **%s**: %s\n", escape(strings.ToUpper(s.Word)), escape(s.Means))
		}
		for _, v := range run.Audits {
			fmt.Fprintf(w, "- %s: **%s** %s\n", escape(v.Audit), escape(v.Verdict), escape(v.Why))
		}
		for _, t := range run.Tables {
			fmt.Fprintf(w, "\n### %s\n\n", escape(t.Title))
			if t.Note != "" {
				fmt.Fprintf(w, "%s\n\n", escape(t.Note))
			}
			t.markdown(w)
		}
		if len(run.Provenance) > 0 {
			fmt.Fprint(w, "\n### Provenance\n\n")
			for _, p := range run.Provenance {
				fmt.Fprintf(w, "- %s: %s\n", escape(p[0]), escape(p[1]))
			}
		}
	}
	return w.Flush()
}

// markdown writes a table.
func (t *Table) markdown(w io.Writer) {
	rule := make([]string, len(t.Columns))
	names := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		names[i], rule[i] = escape(c), "---"
		if len(t.Rows) > 0 && t.Rows[0][i].Is {
			rule[i] = "---:"
		}
	}
	fmt.Fprintf(w, "| %s |\n| %s |\n", strings.Join(names, " | "), strings.Join(rule, " | "))
	for _, cells := range t.Rows {
		line := make([]string, len(cells))
		for i, c := range cells {
			line[i] = escape(c.Text)
			if c.Loud {
				line[i] = "**" + line[i] + "**"
			}
		}
		fmt.Fprintf(w, "| %s |\n", strings.Join(line, " | "))
	}
}

// escape makes a text one line of Markdown that means itself.
func escape(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '<':
			b.WriteString("&lt;")
		case r == '&':
			b.WriteString("&amp;")
		case unicode.IsControl(r) || r == '\u2028' || r == '\u2029':
			b.WriteByte(' ')
		default:
			if strings.ContainsRune("\\`*_[]|#!>~", r) {
				b.WriteByte('\\')
			}
			b.WriteRune(r)
		}
	}
	return b.String()
}
