package sched

import "github.com/cockroachdb/datadriven"

// config starts anew:
//
//	config slots=2 pages=8 slot-pages=4 rows=64 chunk=64 [spans=N] [lookahead=N] [prefix] [recurrent] [snapshots=N] [policy=NAME]
//	  [share=N] [expect=N] [sessions=N]
func (h *harness) config(d *datadriven.TestData) string {
	args, flags := h.args(d)
	var cfg Config
	for key, v := range args {
		switch key {
		case "slots":
			cfg.Slots = h.number(v)
		case "pages":
			cfg.Pages = h.number(v)
		case "slot-pages":
			cfg.SlotPages = h.number(v)
		case "rows":
			cfg.MaxBatchTokens = h.number(v)
		case "chunk":
			cfg.Chunk = h.number(v)
		case "spans":
			cfg.MaxSpans = h.number(v)
		case "lookahead":
			cfg.Lookahead = h.number(v)
		case "snapshots":
			cfg.Snapshots = h.number(v)
		case "share":
			cfg.PrefillShare = h.number(v)
		case "expect":
			cfg.Expect = h.number(v)
		case "sessions":
			cfg.Sessions = h.number(v)
		case "policy":
			cfg.Policy = v
		default:
			d.Fatalf(h.t, "no option %q", key)
		}
	}
	for _, f := range flags {
		switch f {
		case "prefix":
			cfg.PrefixCache = true
		case "recurrent":
			cfg.Recurrent = true
		default:
			d.Fatalf(h.t, "no flag %q", f)
		}
	}
	w, err := newWorld(cfg)
	if err != nil {
		return text(err)
	}
	h.world = w
	h.world.accept = func(int64, int) int { return h.accept }
	h.world.stop = func(id int64) bool { return contains(h.done, id) }
	h.world.inFlight = func(Plan) {
		for _, id := range h.cancelled {
			h.world.cancel(id)
		}
	}
	return text(nil)
}
