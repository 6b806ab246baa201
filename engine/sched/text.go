package sched

import (
	"fmt"
	"strconv"
	"strings"
)

// String returns the plan as text, one line per preemption, operation and
// item, in the order in which they happen, after a line of counts: the form
// that traces hold. Equal plans have equal texts.
func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "step %d: running %d, waiting %d, rows %d+%d, pages %d free %d idle\n",
		p.Step, p.Running, p.Waiting, p.DecodeRows, p.PrefillRows, p.FreePages, p.IdlePages)
	for _, id := range p.Preempted {
		fmt.Fprintf(&b, "preempt %d\n", id)
	}
	if w := p.Blocked; w.Why == NoPages || w.Why == OutputPages {
		fmt.Fprintf(&b, "blocked %d: %v, need %d of %d\n", w.ID, w.Why, w.Need, w.Available)
	} else if w.Why != Open {
		fmt.Fprintf(&b, "blocked %d: %v\n", w.ID, w.Why)
	}
	for _, op := range p.Before {
		fmt.Fprintln(&b, op)
	}
	for _, it := range p.Items {
		fmt.Fprintln(&b, it)
	}
	for _, op := range p.After {
		fmt.Fprintln(&b, op)
	}
	return b.String()
}

// String returns the operation as a line of a trace.
func (o Op) String() string {
	s := fmt.Sprintf("%v %d slot=%d", o.Kind, o.ID, o.Slot)
	switch o.Kind {
	case SetPages:
		s += fmt.Sprintf(" first=%d pages=%s", o.First, formatTokens(o.Pages))
	case Restore, Save:
		s += fmt.Sprintf(" snapshot=%d length=%d", o.Snapshot, o.Length)
	}
	return s
}

// String returns the item as a line of a trace.
func (it Item) String() string {
	s := fmt.Sprintf("%v %d slot=%d [%d,%d)", it.Phase, it.ID, it.Slot, it.Start, it.Start+it.Rows)
	if it.Phase == Decode {
		s += fmt.Sprintf(" k=%d", it.K)
	} else if it.Last {
		s += " last"
	}
	if it.Cached > 0 {
		s += fmt.Sprintf(" cached=%d", it.Cached)
	}
	return s
}

// formatTokens writes a list as comma-separated numbers, with a..b for three or
// more that count up and n*v for three or more that are equal.
func formatTokens(v []int32) string {
	var parts []string
	for i := 0; i < len(v); {
		up, same := i+1, i+1
		for up < len(v) && int64(v[up]) == int64(v[up-1])+1 {
			up++
		}
		for same < len(v) && v[same] == v[i] {
			same++
		}
		switch first := strconv.Itoa(int(v[i])); {
		case up-i >= 3:
			parts = append(parts, first+".."+strconv.Itoa(int(v[up-1])))
			i = up
		case same-i >= 3:
			parts = append(parts, strconv.Itoa(same-i)+"*"+first)
			i = same
		default:
			parts = append(parts, first)
			i++
		}
	}
	return strings.Join(parts, ",")
}

// maxTokens bounds the length of a list that parseTokens returns, so that a
// short text cannot ask for all memory.
const maxTokens = 1 << 22

// parseTokens reads what formatTokens writes.
func parseTokens(s string) ([]int32, error) {
	if s == "" {
		return nil, nil
	}
	var out []int32
	for part := range strings.SplitSeq(s, ",") {
		n, first, step := 1, part, 0
		if a, b, ok := strings.Cut(part, ".."); ok {
			lo, err := parseInt(a, 32)
			if err != nil {
				return nil, err
			}
			hi, err := parseInt(b, 32)
			if err != nil {
				return nil, err
			}
			if hi < lo {
				return nil, fmt.Errorf("list %q counts down", part)
			}
			n, first, step = int(hi-lo)+1, a, 1
		} else if a, b, ok := strings.Cut(part, "*"); ok {
			count, err := parseInt(a, 32)
			if err != nil {
				return nil, err
			}
			if count < 1 {
				return nil, fmt.Errorf("list %q repeats %d times, want at least 1", part, count)
			}
			n, first = int(count), b
		}
		v, err := parseInt(first, 32)
		if err != nil {
			return nil, err
		}
		if len(out)+n > maxTokens {
			return nil, fmt.Errorf("list of more than %d numbers", maxTokens)
		}
		for i := range n {
			out = append(out, int32(int(v)+i*step))
		}
	}
	return out, nil
}

func parseInt(s string, bits int) (int64, error) {
	v, err := strconv.ParseInt(s, 10, bits)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number of %d bits", s, bits)
	}
	return v, nil
}
