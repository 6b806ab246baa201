// Package audit holds the three audits of a run. Tokens asks whether the output
// is what plain decoding gives, counts whether the numbers add up and are those
// of the declared mode, work whether every step did what it claims. Each is
// blind to faults that another sees.
package audit
