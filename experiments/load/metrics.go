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
	// Request is the value of one request of which the metric is the statistic
	// Stat (of sorted values); nil for metrics of a load as a whole.
	Request func(*Row) (v float64, ok bool)
	Stat    func(sorted []float64) float64
}

// latencies are the distributions that metrics are made of.
var latencies = []struct {
	name    string
	of      func(*Figures) *Dist
	request func(*Row) (float64, bool)
}{
	{"ttft", func(f *Figures) *Dist { return &f.TTFT }, func(r *Row) (float64, bool) { return ms(r.First - r.Sent), true }},
	{"tpot", func(f *Figures) *Dist { return &f.TPOT }, (*Row).tpot},
	{"e2e", func(f *Figures) *Dist { return &f.E2E }, func(r *Row) (float64, bool) { return ms(r.Last - r.Sent), true }},
	{"itl", func(f *Figures) *Dist { return &f.ITL }, nil},
	{"icl", func(f *Figures) *Dist { return &f.ICL }, nil},
	{"ttst", func(f *Figures) *Dist { return &f.TTST }, nil},
	{"ttft_sched", func(f *Figures) *Dist { return &f.TTFTSched }, func(r *Row) (float64, bool) { return ms(r.First - r.Sched), true }},
	{"tpot_incl", func(f *Figures) *Dist { return &f.TPOTIncl }, func(r *Row) (float64, bool) { return ms(r.Last-r.Sent) / float64(r.Output), true }},
}

// tpot is the time per token behind the first; of one token there is none.
func (r *Row) tpot() (float64, bool) {
	if r.Output < 2 {
		return 0, false
	}
	return ms(r.Last-r.First) / float64(r.Output-1), true
}

// statistics are those of a distribution.
var statistics = []struct {
	name string
	of   func(*Dist) float64
	stat func([]float64) float64
}{
	{"mean", func(d *Dist) float64 { return d.Mean }, mean},
	{"p50", func(d *Dist) float64 { return d.P50 }, func(v []float64) float64 { return quantile(v, 0.5) }},
	{"p90", func(d *Dist) float64 { return d.P90 }, func(v []float64) float64 { return quantile(v, 0.9) }},
	{"p99", func(d *Dist) float64 { return d.P99 }, func(v []float64) float64 { return quantile(v, 0.99) }},
}

func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

// Thirteen is the number of metrics, the first of Metrics, of the published table:
// output tokens per second, and mean, p50, p90 and p99 of ttft, tpot and e2e.
const Thirteen = 13

// Metrics lists every metric in the order of tables.
func Metrics() []Metric {
	whole := func(name, unit string, of func(*Figures) float64) Metric {
		return Metric{Name: name, Unit: unit, Of: of}
	}
	all := []Metric{whole("out_tok_s", "tok/s", func(f *Figures) float64 { return f.OutTokS })}
	for _, l := range latencies {
		for _, s := range statistics {
			all = append(all, Metric{
				Name: fmt.Sprintf("%s_%s", l.name, s.name), Unit: "ms", Lower: true,
				Of: func(f *Figures) float64 { return s.of(l.of(f)) }, Request: l.request, Stat: s.stat,
			})
		}
	}
	return append(all,
		whole("total_tok_s", "tok/s", func(f *Figures) float64 { return f.TotalTokS }),
		whole("req_s", "1/s", func(f *Figures) float64 { return f.ReqS }),
		whole("req_tok_s_mean", "tok/s", func(f *Figures) float64 { return f.ReqTokS.Mean }),
		whole("interactivity_p50", "tok/s", func(f *Figures) float64 { return f.Interactivity[0] }),
		whole("interactivity_p90", "tok/s", func(f *Figures) float64 { return f.Interactivity[1] }),
		whole("e2e_interactivity_p50", "tok/s", func(f *Figures) float64 { return f.E2EInteractivity[0] }),
		whole("e2e_interactivity_p90", "tok/s", func(f *Figures) float64 { return f.E2EInteractivity[1] }),
		whole("decode_tok_s", "tok/s", func(f *Figures) float64 { return f.DecodeTokS }),
		whole("decoding", "", func(f *Figures) float64 { return f.Decoding }),
	)
}
