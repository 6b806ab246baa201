// Package jinja renders the templates that come with language models: the
// Jinja language (https://jinja.palletsprojects.com, version 3.1) as Hugging
// Face transformers sets it up for chat templates, which is trim_blocks and
// lstrip_blocks on, no HTML escaping, the immutable sandbox, loop controls, the
// generation tag as a mere group, and a tojson that keeps the order of keys.
//
// Templates come from strangers. A [Template] is parsed with a bound on its
// nesting, and renders within [Limits]: steps taken, bytes made and depth of
// calls, so that one that loops, grows or calls itself ends in an error. (The
// Jinja libraries for Go have no such bounds: a macro that calls itself
// overflows the stack there, which no program survives.)
//
// Values are those of Python: nil is None, and there are [Undefined], bool,
// int64, float64, string, *[List], *[Dict] and functions. Text is Unicode;
// indices and lengths count code points.
//
// Left out, each with an error that says so: include, import, extends and
// block, integers beyond 64 bits in arithmetic, and filters that make HTML.
package jinja
