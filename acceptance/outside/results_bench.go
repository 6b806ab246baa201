package outside

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strconv"
)

// bench are the figures of a row of a serving benchmark.
type bench struct {
	row
	l                                  *ledger
	duration, completed, tokens, input float64
	lens, ttfts                        []float64
	itls                               [][]float64
}

// bench checks a row of vllm bench serve or of SGLang's bench_serving.
func (a *resultsAudit) bench(r row, f Format) error {
	b := &bench{row: r, l: a.counts}
	for _, v := range []struct {
		key string
		at  *float64
	}{{"duration", &b.duration}, {"completed", &b.completed}, {"total_output_tokens", &b.tokens}, {"total_input_tokens", &b.input}} {
		var err error
		if *v.at, err = r.need(v.key); err != nil {
			return err
		}
	}
	var err error
	if b.lens, err = r.list("output_lens"); err != nil {
		return err
	}
	if b.ttfts, err = r.list("ttfts"); err != nil {
		return err
	}
	if b.itls, err = r.lists("itls"); err != nil {
		return err
	}
	rates := map[string]float64{"request_throughput": b.completed, "output_throughput": b.tokens}
	if f == VLLMBench {
		rates["total_token_throughput"] = b.tokens + b.input
	} else {
		rates["input_throughput"], rates["total_throughput"] = b.input, b.tokens+b.input
	}
	if err := b.rates(rates); err != nil {
		return err
	}
	if err := b.details(); err != nil {
		return err
	}
	if err := b.percentiles(); err != nil {
		return err
	}
	if f == VLLMBench {
		return a.vllm(b)
	}
	return a.sglang(b)
}

// rates checks that duration x throughput is what was counted.
func (b *bench) rates(rates map[string]float64) error {
	for _, key := range slices.Sorted(maps.Keys(rates)) {
		want := rates[key]
		v, err := b.number(key)
		if err != nil {
			return err
		}
		if v == nil {
			b.l.skip("duration x "+key, "%s has no %s", b.name(), key)
			continue
		}
		b.l.check("duration x "+key, nearly(*v*b.duration, want, 0.002), b.name(), "%g a second for %g s are %.1f, the file has %.0f", *v, b.duration, *v*b.duration, want)
	}
	prompts, err := b.number("num_prompts")
	if err != nil {
		return err
	}
	failed, err := b.number("failed")
	if err != nil {
		return err
	}
	if prompts != nil && failed != nil {
		b.l.check("completed + failed = prompts", b.completed+*failed == *prompts, b.name(), "%.0f completed and %.0f failed of %.0f prompts", b.completed, *failed, *prompts)
	}
	return nil
}

// details checks the lists by request against the totals.
func (b *bench) details() error {
	if b.lens == nil {
		b.l.skip("tokens by request", "%s has no output_lens: run with --save-detailed (vLLM) or --output-details (SGLang)", b.name())
		return nil
	}
	b.l.check("tokens by request", total(b.lens) == b.tokens, b.name(), "output_lens add up to %.0f, total_output_tokens has %.0f", total(b.lens), b.tokens)
	inputs, err := b.list("input_lens")
	if err != nil {
		return err
	}
	for _, list := range []struct {
		key string
		n   int
	}{{"input_lens", len(inputs)}, {"ttfts", len(b.ttfts)}, {"itls", len(b.itls)}} {
		if !b.null(list.key) {
			b.l.check("lists are of one length", list.n == len(b.lens), b.name(), "%s has %d entries, output_lens %d", list.key, list.n, len(b.lens))
		}
	}
	if inputs != nil && b.completed == float64(len(b.lens)) {
		b.l.check("tokens by request", total(inputs) == b.input, b.name(), "input_lens add up to %.0f, total_input_tokens has %.0f", total(inputs), b.input)
	}
	for i, gaps := range b.itls {
		if i < len(b.lens) && b.lens[i] > 0 {
			b.l.check("a piece has a token", float64(len(gaps)) < b.lens[i]+1, b.name(), "request %d has %d pieces behind the first, for %.0f tokens", i, len(gaps), b.lens[i])
		}
	}
	return b.means()
}

// means recomputes ttft, itl and tpot from the lists.
func (b *bench) means() error {
	if len(b.ttfts) != len(b.lens) || len(b.itls) != len(b.lens) {
		return nil
	}
	var ttft, itl, tpot []float64
	for i, n := range b.lens {
		if n == 0 {
			continue // failed
		}
		ttft = append(ttft, b.ttfts[i])
		itl = append(itl, b.itls[i]...)
		if n > 1 {
			tpot = append(tpot, total(b.itls[i])/(n-1))
		}
	}
	for _, m := range []struct {
		key string
		v   []float64
	}{{"mean_ttft_ms", ttft}, {"mean_itl_ms", itl}, {"mean_tpot_ms", tpot}} {
		key, v := m.key, m.v
		stated, err := b.number(key)
		if err != nil {
			return err
		}
		if stated == nil || len(v) == 0 {
			continue
		}
		want := 1000 * total(v) / float64(len(v))
		b.l.check(key+" is that of the requests", nearly(*stated, want, 0.02), b.name(), "%s is %.4f, the lists give %.4f", key, *stated, want)
	}
	return nil
}

// quantile matches the statistics of a metric.
var quantile = regexp.MustCompile(`^(mean|median|std|max|p(\d+(?:\.\d+)?))_(\w+)_ms$`)

// percentiles checks that those of one metric rise.
func (b *bench) percentiles() error {
	type point struct{ at, v float64 }
	metrics := map[string][]point{}
	for _, key := range slices.Sorted(maps.Keys(b.m)) {
		m := quantile.FindStringSubmatch(key)
		if m == nil {
			continue
		}
		v, err := b.number(key)
		if err != nil {
			return err
		}
		if v == nil {
			continue
		}
		at := map[string]float64{"median": 50, "max": 100}[m[1]]
		if m[2] != "" {
			if at, err = strconv.ParseFloat(m[2], 64); err != nil || at > 100 {
				return b.errorf(key, "%s is no percentile", m[2])
			}
		}
		if at > 0 {
			metrics[m[3]] = append(metrics[m[3]], point{at, *v})
		}
	}
	for _, metric := range slices.Sorted(maps.Keys(metrics)) {
		points := metrics[metric]
		slices.SortFunc(points, func(x, y point) int { return cmp.Compare(x.at, y.at) })
		for i := 1; i < len(points); i++ {
			same := points[i].at == points[i-1].at
			ok := points[i].v >= points[i-1].v && (!same || nearly(points[i].v, points[i-1].v, 1e-6))
			b.l.check("percentiles rise", ok, b.name(), "of %s the percentile %g is %g ms, %g is %g ms", metric, points[i-1].at, points[i-1].v, points[i].at, points[i].v)
		}
		mean, err := b.number("mean_" + metric + "_ms")
		if err != nil {
			return err
		}
		if last := points[len(points)-1]; mean != nil && last.at == 100 {
			b.l.check("percentiles rise", *mean <= last.v, b.name(), "the mean of %s is %g ms, the largest %g ms", metric, *mean, last.v)
		}
	}
	return nil
}
