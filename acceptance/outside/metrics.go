package outside

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Sample is one line of a Prometheus exposition.
type Sample struct {
	Name   string
	Labels map[string]string
	Value  float64
}

// Metrics is a Prometheus exposition, in the order of its lines.
type Metrics []Sample

// maxSamples bounds the lines that a server can make us keep.
const maxSamples = 1_000_000

// ParseMetrics reads the Prometheus text format. Comments are skipped,
// timestamps ignored; any other line that is not a sample is an error that
// names it.
func ParseMetrics(text string) (Metrics, error) {
	var out Metrics
	for n, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		s, err := parseSample(line)
		if err != nil {
			return nil, fmt.Errorf("metrics, line %d: %w", n+1, err)
		}
		if out = append(out, s); len(out) > maxSamples {
			return nil, fmt.Errorf("metrics: more than %d samples", maxSamples)
		}
	}
	return out, nil
}

func parseSample(line string) (Sample, error) {
	end := strings.IndexAny(line, "{ \t")
	if end < 0 {
		return Sample{}, fmt.Errorf("%s has no value", short(line))
	}
	s := Sample{Name: line[:end]}
	if !metricName(s.Name) {
		return s, fmt.Errorf("%s does not begin with a metric's name", short(line))
	}
	rest := line[end:]
	if rest[0] == '{' {
		var err error
		if s.Labels, rest, err = parseLabels(rest[1:]); err != nil {
			return s, fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	fields := strings.Fields(rest)
	if len(fields) == 0 || len(fields) > 2 {
		return s, fmt.Errorf("%s has %d values; want one, and perhaps a time", s.Name, len(fields))
	}
	var err error
	if s.Value, err = strconv.ParseFloat(fields[0], 64); err != nil {
		return s, fmt.Errorf("%s: %s is not a number", s.Name, short(fields[0]))
	}
	return s, nil
}

// metricName reports whether a name is one by Prometheus' rule.
func metricName(s string) bool {
	for i, c := range []byte(s) {
		letter := c|32 >= 'a' && c|32 <= 'z' || c == '_' || c == ':'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// parseLabels reads the labels behind an opening brace, and returns what is
// behind the closing one.
func parseLabels(s string) (map[string]string, string, error) {
	labels := map[string]string{}
	for {
		s = strings.TrimLeft(s, " \t,")
		if strings.HasPrefix(s, "}") {
			return labels, s[1:], nil
		}
		name, rest, ok := strings.Cut(s, "=")
		name, rest = strings.TrimSpace(name), strings.TrimLeft(rest, " \t")
		if !ok || name == "" || !strings.HasPrefix(rest, `"`) {
			return nil, "", fmt.Errorf("labels %s are not name=\"value\"", short(s))
		}
		value, rest, err := parseQuoted(rest[1:])
		if err != nil {
			return nil, "", fmt.Errorf("label %s: %w", short(name), err)
		}
		labels[name], s = value, rest
	}
}

func parseQuoted(s string) (value, rest string, err error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '"':
			return b.String(), s[i+1:], nil
		case '\\':
			if i++; i == len(s) {
				return "", "", fmt.Errorf("the value has no end")
			}
			if s[i] == 'n' {
				b.WriteByte('\n')
				continue
			}
			b.WriteByte(s[i])
		default:
			b.WriteByte(s[i])
		}
	}
	return "", "", fmt.Errorf("the value has no end")
}

// Has reports whether some metric's name begins with prefix.
func (m Metrics) Has(prefix string) bool {
	for _, s := range m {
		if strings.HasPrefix(s.Name, prefix) {
			return true
		}
	}
	return false
}

// Sum adds a counter over all its labels (engines, ranks, reasons). The client
// libraries may have put _total behind the name. It is nil where the metric is
// missing or no finite number of at least 0.
func (m Metrics) Sum(name string) *float64 {
	return m.sum(name, func(map[string]string) bool { return true })
}

func (m Metrics) sum(name string, want func(labels map[string]string) bool) *float64 {
	var total *float64
	for _, s := range m {
		if s.Name != name && s.Name != name+"_total" || !want(s.Labels) {
			continue
		}
		if total == nil {
			total = new(float64)
		}
		*total += s.Value
	}
	if total != nil && (math.IsNaN(*total) || math.IsInf(*total, 0) || *total < 0) {
		return nil
	}
	return total
}

// Positions returns a counter that has a label position, by position from 0.
func (m Metrics) Positions(name string) []float64 {
	var out []float64
	for _, s := range m {
		if s.Name != name && s.Name != name+"_total" {
			continue
		}
		at, err := strconv.Atoi(s.Labels["position"])
		if err != nil || at < 0 || at > 4096 {
			continue
		}
		for len(out) <= at {
			out = append(out, 0)
		}
		out[at] += s.Value
	}
	return out
}

// short quotes the beginning of a text from outside for a message.
func short(s string) string {
	if len(s) > 80 {
		s = s[:80] + "..."
	}
	return strconv.Quote(s)
}
