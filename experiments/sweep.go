package experiments

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// maxPoints bounds a sweep.
const maxPoints = 10_000

// SweepPoint is one experiment of a sweep: the file with some keys set.
type SweepPoint struct {
	// Point counts from 0, in the order of the sweep.
	Point int `json:"point"`
	// Hash is the SHA-256, in hexadecimal digits, of the experiment's content,
	// whatever the order of its keys.
	Hash string `json:"hash"`
	// Set are the keys that the sweep sets, in its order.
	Set []SweepSetting `json:"set"`
	// Dir is the point's run directory, below that of the sweep.
	Dir string `json:"dir"`

	text []byte
}

// SweepSetting is a key that a sweep sets.
type SweepSetting struct {
	Key   string `json:"key"`
	Value any    `json:"value"`
}

// String is the point's settings in a line, such as max_new=64 engine.chunk=16.
func (p *SweepPoint) String() string {
	if len(p.Set) == 0 {
		return "the whole file"
	}
	all := make([]string, len(p.Set))
	for i, s := range p.Set {
		value, err := json.Marshal(s.Value)
		if err != nil {
			value = []byte(fmt.Sprint(s.Value))
		}
		all[i] = s.Key + "=" + strings.Trim(string(value), `"`)
	}
	return strings.Join(all, " ")
}

// axis is a key with the values to try.
type axis struct {
	key    string
	values []any
}

// axes are the section sweep, or a clause of its when: every combination of the
// values of grid, with the first of zip's lists side by side, then the second.
type axes struct {
	grid, zip []axis
	when      []clause
}

// clause says what more is tried, or that nothing is, of points that match.
type clause struct {
	match []axis
	skip  bool
	axes
}

// HasSweep reports whether the file has a section sweep.
func (d *Document) HasSweep() bool { return d.sweep != nil }

// Points expands the section sweep. Without one there is one point, the file. check
// parses a point's text in the file's form.
//
//	sweep:
//	  grid: {max_new: [64, 128], "strategies[0].k": [[2], [4]]}  # every combination
//	  zip: {concurrency: [[1], [8]], engine.chunk: [64, 256]}    # first with first
//	  when:                                                      # in order, of those that match
//	    - {if: {max_new: 128, engine.chunk: [64, 256]}, grid: {engine.prefix_cache: [false, true]}}
//	    - {if: {max_new: 64, engine.chunk: 256}, skip: true}
//
// The last key of a grid changes fastest. A value in if is the key's, or a list that
// has it.
func (d *Document) Points(check func(name string, text []byte) error) ([]SweepPoint, error) {
	s, err := parseAxes(d.sweep, true)
	if err != nil {
		return nil, fmt.Errorf("%s: %s%w", d.name, sectionSweep, err)
	}
	drafts, err := s.expand([]draftPoint{{body: d.body}})
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", d.name, sectionSweep, err)
	}
	if len(drafts) == 0 {
		return nil, fmt.Errorf("%s: %s: every point is skipped", d.name, sectionSweep)
	}
	out := make([]SweepPoint, len(drafts))
	places := map[string]int{}
	for i, draft := range drafts {
		p := &out[i]
		p.Point, p.Set = i, draft.set
		name := fmt.Sprintf("%s, point %d (%s)", d.name, i, p)
		p.text, p.Hash, err = draft.text()
		if len(draft.set) == 0 {
			name, p.text = d.name, d.text
		}
		if err == nil {
			err = check(name, p.text)
		}
		if err != nil {
			return nil, err
		}
		if at, there := places[p.Hash]; there {
			return nil, fmt.Errorf("%s: %s: points %d and %d are the same experiment (%s)", d.name, sectionSweep, at, i, p)
		}
		places[p.Hash] = i
		p.Dir = fmt.Sprintf("points/%04d-%s", i, p.Hash[:12])
	}
	return out, nil
}

// draftPoint is a point in the making.
type draftPoint struct {
	body yaml.MapSlice
	set  []SweepSetting
}

// text is the point's file, and the hash of its content.
func (p *draftPoint) text() (text []byte, hash string, err error) {
	if text, err = yaml.Marshal(p.body); err != nil {
		return nil, "", err
	}
	canonical, err := json.Marshal(plain(p.body))
	sum := sha256.Sum256(canonical)
	return text, hex.EncodeToString(sum[:]), err
}

// with returns the point with a key set.
func (p draftPoint) with(key string, value any) (draftPoint, error) {
	body, err := setKey(p.body, key, value)
	set := slices.DeleteFunc(slices.Clone(p.set), func(s SweepSetting) bool { return s.Key == key })
	return draftPoint{body, append(set, SweepSetting{key, plain(value)})}, err
}

// matches reports whether a point has what a clause asks for.
func (c *clause) matches(p *draftPoint) bool {
	for _, m := range c.match {
		has, there := valueAt(p.body, m.key)
		if !there || !slices.ContainsFunc(m.values, func(v any) bool { return same(v, has) }) {
			return false
		}
	}
	return true
}

// expand tries the axes on each of the points.
func (s *axes) expand(points []draftPoint) (_ []draftPoint, err error) {
	for _, a := range s.grid {
		if points, err = each(points, len(a.values), func(p draftPoint, n int) (draftPoint, error) { return p.with(a.key, a.values[n]) }); err != nil {
			return nil, err
		}
	}
	if len(s.zip) > 0 {
		points, err = each(points, len(s.zip[0].values), func(p draftPoint, n int) (_ draftPoint, err error) {
			for _, a := range s.zip {
				if p, err = p.with(a.key, a.values[n]); err != nil {
					break
				}
			}
			return p, err
		})
		if err != nil {
			return nil, err
		}
	}
	for _, c := range s.when {
		var next []draftPoint
		for _, p := range points {
			more := []draftPoint{p}
			switch {
			case !c.matches(&p):
			case c.skip:
				more = nil
			default:
				if more, err = c.expand(more); err != nil {
					return nil, err
				}
			}
			next = append(next, more...)
		}
		points = next
	}
	return points, nil
}

// each makes n points of each.
func each(points []draftPoint, n int, vary func(draftPoint, int) (draftPoint, error)) ([]draftPoint, error) {
	if len(points)*n > maxPoints {
		return nil, fmt.Errorf("%d points and more; a sweep has at most %d", len(points)*n, maxPoints)
	}
	out := make([]draftPoint, 0, len(points)*n)
	for _, p := range points {
		for i := range n {
			q, err := vary(p, i)
			if err != nil {
				return nil, err
			}
			out = append(out, q)
		}
	}
	return out, nil
}

// parseAxes reads the section, or what a clause has beside its if. Errors begin with
// the key below it.
func parseAxes(v any, whole bool) (s axes, err error) {
	m, ok := v.(yaml.MapSlice)
	if !ok && v != nil {
		return s, errors.New(": want a mapping with grid, zip and when")
	}
	for _, item := range m {
		switch key := fmt.Sprint(item.Key); {
		case key == "grid":
			s.grid, err = parseAxis(item.Value)
		case key == "zip":
			if s.zip, err = parseAxis(item.Value); err == nil {
				err = evenly(s.zip)
			}
		case key == "when" && whole:
			s.when, err = parseClauses(item.Value)
		case !whole && (key == "if" || key == "skip"):
		default:
			err = errors.New(": unknown key")
		}
		if err != nil {
			return s, fmt.Errorf(".%v%w", item.Key, err)
		}
	}
	return s, nil
}

// parseAxis reads keys with lists of values.
func parseAxis(v any) (out []axis, err error) {
	m, ok := v.(yaml.MapSlice)
	if !ok || len(m) == 0 {
		return nil, errors.New(": want a mapping of keys to lists of values")
	}
	for _, item := range m {
		values, ok := item.Value.([]any)
		if !ok || len(values) == 0 {
			return nil, fmt.Errorf(".%v: want a list of values", item.Key)
		}
		out = append(out, axis{fmt.Sprint(item.Key), values})
	}
	return out, nil
}

// evenly refuses lists of several lengths.
func evenly(zip []axis) error {
	for _, a := range zip {
		if len(a.values) != len(zip[0].values) {
			return fmt.Errorf(".%s: has %d values, %s has %d; they go side by side", a.key, len(a.values), zip[0].key, len(zip[0].values))
		}
	}
	return nil
}

// parseClauses reads the list when.
func parseClauses(v any) (out []clause, err error) {
	list, ok := v.([]any)
	if !ok {
		return nil, errors.New(": want a list of clauses")
	}
	for i, e := range list {
		c, err := parseClause(e)
		if err != nil {
			return nil, fmt.Errorf("[%d]%w", i, err)
		}
		out = append(out, c)
	}
	return out, nil
}

func parseClause(v any) (c clause, err error) {
	if c.axes, err = parseAxes(v, false); err != nil {
		return c, err
	}
	m, _ := v.(yaml.MapSlice)
	for _, item := range m {
		switch item.Key {
		case "if":
			match, ok := item.Value.(yaml.MapSlice)
			if !ok || len(match) == 0 {
				return c, errors.New(".if: want a mapping of keys to values")
			}
			for _, is := range match {
				values := []any{is.Value}
				if list, ok := is.Value.([]any); ok {
					values = append(values, list...)
				}
				c.match = append(c.match, axis{fmt.Sprint(is.Key), values})
			}
		case "skip":
			if skip, ok := item.Value.(bool); !ok || !skip {
				return c, errors.New(".skip: is true, or left out")
			}
			c.skip = true
		}
	}
	switch more := len(c.grid) + len(c.zip); {
	case c.match == nil:
		return c, errors.New(": has no if")
	case c.skip == (more > 0):
		return c, errors.New(": want skip, or grid and zip, beside if")
	}
	return c, nil
}
