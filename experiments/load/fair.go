package load

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Bound are the claims that two targets must share for a comparison to be one of
// engines: the weights, their type, the draft, the memory for keys and values in
// bytes, the most sequences at once, and the longest of them in tokens.
var Bound = []string{"weights", "dtype", "draft", "kv_bytes", "max_sequences", "context"}

// kvSlack is the part by which the memory for keys and values may differ: engines
// round it to pages and blocks.
const kvSlack = 0.05

// Fairness holds two targets to Bound, save what varies on purpose: what differs,
// and what one or both do not tell.
func Fairness(a, b *TargetInfo, varies []string) (unfair, unknown []string) {
	for _, name := range Bound {
		if slices.Contains(varies, name) {
			continue
		}
		x, y := a.Claims[name], b.Claims[name]
		switch {
		case x == "" && y == "":
			unknown = append(unknown, fmt.Sprintf("%s: neither %s nor %s says", name, a.Name, b.Name))
		case x == "":
			unknown = append(unknown, fmt.Sprintf("%s: %s does not say", name, a.Name))
		case y == "":
			unknown = append(unknown, fmt.Sprintf("%s: %s does not say", name, b.Name))
		case !same(name, x, y):
			unfair = append(unfair, fmt.Sprintf("%s: %s has %s, %s has %s", name, a.Name, x, b.Name, y))
		}
	}
	for _, t := range []*TargetInfo{a, b} {
		if t.Untuned {
			unknown = append(unknown, t.Name+" is untuned: its memory share, sequences and prefill chunk are as they were given")
		}
		if t.Fake {
			unfair = append(unfair, t.Name+" is a stand-in that generates nothing")
		}
	}
	return unfair, unknown
}

// same reports whether two claims mean the same.
func same(name, x, y string) bool {
	switch name {
	case "dtype":
		return dtype(x) == dtype(y)
	case "kv_bytes":
		p, errX := strconv.ParseFloat(x, 64)
		q, errY := strconv.ParseFloat(y, 64)
		return errX == nil && errY == nil && math.Abs(p-q) <= kvSlack*max(p, q)
	}
	return strings.EqualFold(x, y)
}

// dtype gives types of numbers one spelling.
func dtype(s string) string {
	s = strings.TrimPrefix(strings.ToLower(s), "torch.")
	switch s {
	case "bf16", "bfloat16":
		return "bf16"
	case "fp16", "float16", "half", "f16":
		return "f16"
	case "fp32", "float32", "float", "f32":
		return "f32"
	}
	return s
}
