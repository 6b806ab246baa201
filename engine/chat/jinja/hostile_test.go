package jinja

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func run(source string, limits Limits) (string, error) {
	t, err := Parse("test", source)
	if err != nil {
		return "", err
	}
	return t.Render(NewDict(), limits, time.Now)
}

// hostile are templates that loop, grow or call themselves without a bound.
var hostile = map[string]string{
	"loops":            "{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}",
	"range":            "{{ range(1000000000000)|list }}",
	"range far":        "{{ range(-9223372036854775807, 9223372036854775807, 9223372036854775807)|list * 99999999 }}",
	"repeat":           "{{ 'ab' * 9223372036854775807 }}",
	"repeat list":      "{{ [1] * 1000000000000 }}",
	"doubling":         "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(90) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
	"doubling sum":     "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(90) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
	"doubling lists":   "{% set ns = namespace(x=[1]) %}{% for i in range(90) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
	"doubling pairs":   "{% set ns = namespace(x=[1]) %}{% for i in range(90) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
	"pairs as JSON":    "{% set ns = namespace(x=[1]) %}{% for i in range(90) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x|tojson }}",
	"pairs compared":   "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(90) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
	"replace":          "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(90) %}{% set ns.x = ns.x.replace('a', 'aaaaaaaaaaaaaaaa') %}{% endfor %}",
	"join":             "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(90) %}{% set ns.x = ns.x|join(ns.x) %}{% endfor %}",
	"macro":            "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
	"two macros":       "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{{ a() }}{% endmacro %}{{ a() }}",
	"macro branches":   "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(90) }}",
	"block sets":       "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(90) %}{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}{% endfor %}",
	"namespace itself": "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
	"itself in itself": "{% set ns = namespace() %}{% set ns.x = [ns, ns] %}{{ ns }}",
	"itself compared":  "{% set a = namespace() %}{% set a.x = [a] %}{% set b = namespace() %}{% set b.x = [b] %}{% for i in range(99999) %}{% for j in range(99999) %}{{ a.x == b.x }}{% endfor %}{% endfor %}",
	"output":           "{% for a in range(90000) %}{% for b in range(90000) %}aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa{% endfor %}{% endfor %}",
	"scanning":         "{% set x = 'a' * 10000000 %}{% for a in range(90000) %}{% for b in range(90000) %}{{ 'b' in x }}{% endfor %}{% endfor %}",
	"stripping":        "{% set x = 'ab' * 500000 %}{% for a in range(90000) %}{{ x.strip(x) }}{% endfor %}",
	"indent":           "{% set x = '\n' * 10000000 %}{{ x|indent(1000, true, true) }}",
	"center":           "{{ 'a'|center(1000000000000) }}",
	"zfill":            "{{ 'a'.zfill(1000000000000) }}",
	"percent":          "{{ '%999999999d' % 1 }}",
	"json indent":      "{{ [[[[1]]]]|tojson(indent=100000000) }}",
	"sorting":          "{% set x = range(90000)|list %}{% for a in range(90000) %}{{ x|sort(reverse=true)|length }}{% endfor %}",
	"batch":            "{% for a in range(90000) %}{{ [1]|batch(1000000, 'x')|list|length }}{% endfor %}",
	"mapping":          "{% set x = range(90000) %}{% for a in range(90000) %}{% set y = x|map('string')|list %}{% endfor %}",
	"power":            "{{ 10 ** 10000000000 }}",
	"long sum":         "{{ 1" + strings.Repeat("+1", 100_000) + " }}",
	"long filters":     "{{ 1" + strings.Repeat("|string", 100_000) + " }}",
	"long attributes":  "{{ a" + strings.Repeat(".a", 100_000) + " }}",
	"parentheses":      "{{ " + strings.Repeat("(", 100_000) + "1" + strings.Repeat(")", 100_000) + " }}",
	"lists":            "{{ " + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + " }}",
	"signs":            "{{ " + strings.Repeat("- ", 100_000) + "1 }}",
	"nots":             "{{ " + strings.Repeat("not ", 100_000) + "1 }}",
	"conditions":       "{{ " + strings.Repeat("1 if 1 else ", 100_000) + "1 }}",
	"ifs":              strings.Repeat("{% if true %}", 100_000) + strings.Repeat("{% endif %}", 100_000),
	"fors":             strings.Repeat("{% for a in [1, 2] %}", 100) + "x" + strings.Repeat("{% endfor %}", 100),
	"targets":          "{% for " + strings.Repeat("(", 100_000) + "a" + strings.Repeat(")", 100_000) + " in [1] %}{% endfor %}",
	"size":             strings.Repeat("a", maxSource+1),
}

// TestHostile runs each within 10 seconds and 1 GiB of what the collector sees.
func TestHostile(t *testing.T) {
	for name, source := range hostile {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			out, err := run(source, Limits{})
			runtime.ReadMemStats(&after)
			require.Error(t, err, "%.80q", out)
			if !testing.Short() { // not under the race detector
				require.Less(t, time.Since(start), 10*time.Second)
			}
			require.Less(t, after.HeapSys, uint64(1<<30)+before.HeapSys)
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, "test", e.Template)
		})
	}
}

func TestLimitsAreLimits(t *testing.T) {
	_, err := run("{% for i in range(100) %}x{% endfor %}", Limits{Steps: 20})
	require.ErrorIs(t, err, ErrLimit)
	require.EqualError(t, err, "template test: line 1: range: it does more than a template may: more steps than the limit")
	_, err = run("{{ 'abc' * 10 }}", Limits{Bytes: 20})
	require.ErrorIs(t, err, ErrLimit)
	out, err := run("{{ 'abc' * 10 }}", Limits{Bytes: 200})
	require.NoError(t, err)
	require.Len(t, out, 30)
}

func TestErrorsNameTheLine(t *testing.T) {
	for source, want := range map[string]string{
		"a\n{{ x.y }}":                                `template test: line 2: "x", which is undefined has no attribute "y"`,
		"a\n\n{% for i in 5 %}{% endfor %}":           "template test: line 3: a value of type int has no elements",
		"{% include 'x' %}":                           `template test: line 1: the statement "include" is unknown, or not supported in chat templates`,
		"{{ 1 +":                                      "template test: line 1: a {{ has no }}",
		"{% if x %}\n":                                "template test: line 1: endif is missing",
		"\n{{ raise_exception('not so') }}":           "template test: line 2: not so",
		"{{ [1]|nope }}":                              `template test: line 1: there is no filter "nope"`,
		"{% for a in [] recursive %}":                 "template test: line 1: recursive loops are not supported in chat templates",
		"{{ 9223372036854775807 + 1 }}":               "template test: line 1: the integer is beyond 64 bits",
		"{{ [].append(1) }}":                          "template test: line 1: method append: templates may not change lists and dicts",
		"{{ strftime_now('%Q') }}":                    "template test: line 1: strftime_now: the directive %Q is not supported",
		"{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}": "template test: line 1: macro m takes 1 arguments, not 2",
	} {
		_, err := run(source, Limits{})
		require.EqualError(t, err, want, source)
	}
	_, err := run("{{ raise_exception('not so') }}", Limits{})
	var raised *Raised
	require.ErrorAs(t, err, &raised)
	require.False(t, errors.Is(err, ErrLimit))
}

// FuzzRender feeds any text as a template: an error, or a text, and neither a
// panic nor more work than the limits.
func FuzzRender(f *testing.F) {
	for _, source := range hostile {
		if len(source) < 500 {
			f.Add(source)
		}
	}
	f.Add("{%- for m in messages -%}{{ m.role ~ m['content'][1:]|trim|tojson(indent=2) }}{% endfor %}{# c #}{% raw %}{{{% endraw %}")
	f.Add("{% set ns = namespace(a=1) %}{% macro f(x, y=2) %}{{ x is defined and x in [1] }}{% endmacro %}{{ f(1, *[2]) if ns.a else 'a'.split()[-1] }}")
	vars, err := ParseJSON([]byte(`{"messages": [{"role": "user", "content": "é \u2028 x", "tool_calls": [{"function": {"arguments": {"a": [1, 2.5, null]}}}]}]}`))
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, source string) {
		tmpl, err := Parse("fuzz", source)
		if err != nil {
			return
		}
		start := time.Now()
		_, _ = tmpl.Render(vars.(*Dict), Limits{Steps: 200_000, Bytes: 4 << 20}, time.Now)
		if !testing.Short() { // not under the race detector
			require.Less(t, time.Since(start), 5*time.Second)
		}
	})
}
