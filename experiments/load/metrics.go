package load

import "fmt"

// Metric is a figure with a name.
type Metric struct {
	// Name is what tables and Spread call it; Unit its unit.
	Name, Unit string
	// Lower says that less is better.
	Lower bool
	// Of takes it from figures.
	Of func(*Figures) float64
}

// latencies are the distributions that metrics are made of.
var latencies = []struct {
	name string
	of   func(*Figures) *Dist
}{
	{"ttft", func(f *Figures) *Dist { return &f.TTFT }},
	{"tpot", func(f *Figures) *Dist { return &f.TPOT }},
	{"e2e", func(f *Figures) *Dist { return &f.E2E }},
	{"itl", func(f *Figures) *Dist { return &f.ITL }},
	{"icl", func(f *Figures) *Dist { return &f.ICL }},
	{"ttst", func(f *Figures) *Dist { return &f.TTST }},
	{"ttft_sched", func(f *Figures) *Dist { return &f.TTFTSched }},
	{"tpot_incl", func(f *Figures) *Dist { return &f.TPOTIncl }},
}

// statistics are those of a distribution.
var statistics = []struct {
	name string
	of   func(*Dist) float64
}{
	{"mean", func(d *Dist) float64 { return d.Mean }},
	{"p50", func(d *Dist) float64 { return d.P50 }},
	{"p90", func(d *Dist) float64 { return d.P90 }},
	{"p99", func(d *Dist) float64 { return d.P99 }},
}

// Thirteen is the number of metrics, the first of Metrics, of the published table:
// output tokens per second, and mean, p50, p90 and p99 of ttft, tpot and e2e.
const Thirteen = 13

// Metrics lists every metric in the order of tables.
func Metrics() []Metric {
	all := []Metric{{"out_tok_s", "tok/s", false, func(f *Figures) float64 { return f.OutTokS }}}
	for _, l := range latencies {
		for _, s := range statistics {
			all = append(all, Metric{fmt.Sprintf("%s_%s", l.name, s.name), "ms", true, func(f *Figures) float64 { return s.of(l.of(f)) }})
		}
	}
	return append(all,
		Metric{"total_tok_s", "tok/s", false, func(f *Figures) float64 { return f.TotalTokS }},
		Metric{"req_s", "1/s", false, func(f *Figures) float64 { return f.ReqS }},
		Metric{"req_tok_s_mean", "tok/s", false, func(f *Figures) float64 { return f.ReqTokS.Mean }},
		Metric{"interactivity_p50", "tok/s", false, func(f *Figures) float64 { return f.Interactivity[0] }},
		Metric{"interactivity_p90", "tok/s", false, func(f *Figures) float64 { return f.Interactivity[1] }},
		Metric{"e2e_interactivity_p50", "tok/s", false, func(f *Figures) float64 { return f.E2EInteractivity[0] }},
		Metric{"e2e_interactivity_p90", "tok/s", false, func(f *Figures) float64 { return f.E2EInteractivity[1] }},
		Metric{"decode_tok_s", "tok/s", false, func(f *Figures) float64 { return f.DecodeTokS }},
		Metric{"decoding", "", false, func(f *Figures) float64 { return f.Decoding }},
	)
}
