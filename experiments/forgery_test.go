package experiments

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/acceptance"
	"exacta.dev/exacta/acceptance/audit"
	"exacta.dev/exacta/engine"
)

// forgeable is a run that forgers work on, made once.
var forgeable = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "exacta-forged-")
	if err != nil {
		return "", err
	}
	length := 2.5
	cfg := Default()
	cfg.Name, cfg.MaxNew, cfg.Repeats, cfg.IgnoreEOS = "forgeable", 28, 1, true
	cfg.Prompts = Prompts{Sets: []Prompts{{Limit: 2, MaxTokens: 40}, {Kind: kindRandom, Limit: 1, MaxTokens: 40}}}
	cfg.Strategies = []Strategy{
		{Drafter: "mtp", K: []int{3}}, {Drafter: "ngram", K: []int{4}}, {Drafter: "mtp", K: []int{2}, Simulate: &Simulate{Length: &length}},
	}
	to := filepath.Join(dir, "run")
	_, err = Run(context.Background(), cfg, RunOptions{Dir: to})
	return to, err
})

// forgery is a run directory in the hands of a forger, who has this package's own
// writers: checksums are right.
type forgery struct {
	t       *testing.T
	dir     string
	meta    acceptance.Meta
	records []*engine.Record
	outputs []output
	sum     Summary
	prompts []Prompt
	config  string
}

func newForgery(t *testing.T) *forgery {
	from, err := forgeable()
	require.NoError(t, err)
	f := &forgery{t: t, dir: filepath.Join(t.TempDir(), "run")}
	require.NoError(t, os.CopyFS(f.dir, os.DirFS(from)))
	reader, err := acceptance.Open(f.dir)
	require.NoError(t, err)
	f.meta = reader.Meta()
	for r, err := range reader.All() {
		require.NoError(t, err)
		f.records = append(f.records, r)
	}
	f.outputs, err = readLines[output](filepath.Join(f.dir, "outputs.jsonl"), "output")
	require.NoError(t, err)
	f.prompts, err = readLines[Prompt](filepath.Join(f.dir, "prompts.jsonl"), "prompt")
	require.NoError(t, err)
	sum, err := readSummary(filepath.Join(f.dir, "summary.json"))
	require.NoError(t, err)
	f.sum = *sum
	text, err := os.ReadFile(filepath.Join(f.dir, "config.yaml"))
	require.NoError(t, err)
	f.config = string(text)
	return f
}

// write puts everything back, sealed. The configuration's hash goes with it.
func (f *forgery) write() {
	for _, name := range segmentsOf(f.t, f.dir) {
		require.NoError(f.t, os.Remove(name))
	}
	w, err := acceptance.NewWriter(f.dir, f.meta)
	require.NoError(f.t, err)
	for _, r := range f.records {
		require.NoError(f.t, w.Record(r))
	}
	require.NoError(f.t, w.Close())
	writeLines(f.t, filepath.Join(f.dir, "outputs.jsonl"), f.outputs)
	writeLines(f.t, filepath.Join(f.dir, "prompts.jsonl"), f.prompts)
	require.NoError(f.t, os.WriteFile(filepath.Join(f.dir, "config.yaml"), []byte(f.config), 0o644))
	require.NoError(f.t, f.sum.write(f.dir))
}

func writeLines[T any](t *testing.T, name string, lines []T) {
	out, err := os.Create(name)
	require.NoError(t, err)
	enc := json.NewEncoder(out)
	for _, l := range lines {
		require.NoError(t, enc.Encode(l))
	}
	require.NoError(t, out.Close())
}

// configure changes the configuration, and its hash wherever it is.
func (f *forgery) configure(change func(*Config)) {
	cfg, err := ParseConfig("config.yaml", []byte(f.config))
	require.NoError(f.t, err)
	change(&cfg)
	text, err := yaml.Marshal(cfg)
	require.NoError(f.t, err)
	f.config = string(text)
	f.meta.Provenance["config"], f.sum.Provenance["config"] = configHash(cfg), configHash(cfg)
}

// point returns the line of a point in the summary.
func (f *forgery) point(name string) *PointResult {
	for i := range f.sum.Runs {
		if f.sum.Runs[i].String() == name {
			return &f.sum.Runs[i]
		}
	}
	require.Fail(f.t, "no point "+name)
	return nil
}

// refigure makes the summary's figures those of the records, wall times included:
// times tells how much shorter the forger says that they were.
func (f *forgery) refigure(times float64) {
	rounds := map[string]*acceptance.Stats{}
	fresh := map[string]*acceptance.Fresh{}
	for _, r := range f.records {
		name := audit.PointOf(r.Request)
		if rounds[name] == nil {
			rounds[name], fresh[name] = &acceptance.Stats{}, &acceptance.Fresh{}
		}
		rounds[name].Add(r)
		fresh[name].Add(r)
	}
	kept := f.sum.Runs[:0]
	for _, p := range f.sum.Runs {
		s, g := rounds[p.String()], fresh[p.String()]
		if s == nil {
			continue
		}
		sum := s.Summary()
		for i := range p.Seconds {
			p.Seconds[i] *= times
		}
		p.Tokens, p.AcceptLength, p.AcceptanceByPosition, p.Simulated = int(sum.Emitted), sum.AcceptLength, sum.AcceptanceByPosition, sum.Simulated
		p.DraftShare, p.StepMs, p.Preemptions, p.DecodeTokS = sum.DraftShare, sum.DecodeStepMs, int(sum.Preemptions), sum.DecodeTokS
		p.Repeated4Grams, p.FreshAcceptLength = g.RepeatedShare(), g.AcceptLength()
		p.TokS = float64(p.Tokens) / p.Seconds[0]
		kept = append(kept, p)
	}
	f.sum.Runs = kept
	for i := range f.sum.Runs {
		p := &f.sum.Runs[i]
		base := f.point(Point{Strategy: -1, Rule: p.Rule, Concurrency: p.Concurrency}.String())
		p.RatioToPlain, p.DecodeRatio = p.TokS/base.TokS, p.DecodeTokS/base.DecodeTokS
		if p.FreshRatio != nil {
			ratio := fresh[p.String()].TokS() / fresh[base.String()].TokS()
			p.FreshRatio = &ratio
		}
		if !p.Simulated {
			p.RealAcceptLength = nil
		} else if s := rounds[p.String()].Summary(); p.RealAcceptLength != nil {
			real := s.RealAccepted.Per(s.Verifications) + 1
			p.RealAcceptLength = &real
		}
		f.reclass(p)
	}
}

// reclass makes a line's figures by class those of the records.
func (f *forgery) reclass(p *PointResult) {
	classes := map[string]string{}
	for _, q := range f.prompts {
		classes[q.ID] = q.Class
	}
	speed := func(point, class string) (s acceptance.Stats, tokS float64) {
		ns := int64(0)
		f.of(point, func(r *engine.Record) {
			if _, id := acceptance.SplitRequest(r.Request); classes[id] == class {
				s.Add(r)
				ns += r.TotalNs
			}
		})
		return s, 1e9 * float64(s.Emitted) / float64(ns)
	}
	for i := range p.Classes {
		c := &p.Classes[i]
		s, tokS := speed(p.String(), c.Class)
		_, plain := speed(Point{Strategy: -1, Rule: p.Rule, Concurrency: p.Concurrency}.String(), c.Class)
		sum := s.Summary()
		c.Tokens, c.AcceptLength, c.AcceptanceByPosition, c.DraftShare = int(sum.Emitted), sum.AcceptLength, sum.AcceptanceByPosition, sum.DraftShare
		c.TokS, c.RatioToPlain = tokS, tokS/plain
	}
}

// Names of the points that forgeries are about.
const (
	mtpAlone   = "0-mtp.k3.greedy.c1"
	mtpDrawn   = "2-mtp.k2.greedy.c1"
	plainAlone = "plain.greedy.c1"
)

// of calls each for the records of a point.
func (f *forgery) of(point string, each func(r *engine.Record)) {
	for _, r := range f.records {
		if audit.PointOf(r.Request) == point {
			each(r)
		}
	}
}

// drop removes the records that match, and closes the gaps in their numbers.
func (f *forgery) drop(match func(r *engine.Record) bool) {
	f.records = slices.DeleteFunc(f.records, match)
	f.renumber()
}

// renumber numbers steps, sequences' steps and sequences through.
func (f *forgery) renumber() {
	step, last := int64(-1), int64(-1)
	seqSteps, seqs := map[string]int32{}, map[string]int64{}
	for _, r := range f.records {
		if r.Step != last {
			step, last = step+1, r.Step
		}
		r.Step = step
		if _, ok := seqs[r.Request]; !ok {
			seqs[r.Request] = int64(len(seqs))
		}
		r.Sequence, r.SeqStep = seqs[r.Request], seqSteps[r.Request]
		seqSteps[r.Request]++
	}
}

// An untouched copy, written by the forger's pen, passes: what fails below fails
// for what was forged.
func TestForgersPen(t *testing.T) {
	f := newForgery(t)
	f.refigure(1)
	f.write()
	res, err := Audit(t.Context(), f.dir, AuditOptions{})
	require.NoError(t, err)
	require.Equal(t, audit.Pass, res.Verdict, "%+v", findings(res))
}

func findings(res *AuditResult) (out []string) {
	for _, r := range res.Reports() {
		for _, f := range r.Findings {
			out = append(out, r.Audit+": "+f.Check+": "+f.Why)
		}
	}
	return out
}

// forgeries are false claims with records, outputs and summary that go together.
var forgeries = map[string]func(f *forgery){
	"one more accepted draft": func(f *forgery) {
		done := false
		f.of(mtpAlone, func(r *engine.Record) {
			if n := int(r.Accepted); !done && n > 0 && n+1 < len(r.ProposedIDs) {
				done = true
				r.Accepted++
				r.RealAccepted, r.ForcedAccepted = r.Accepted, r.Accepted
			}
		})
		f.refigure(1)
	},
	"other drafts, accepted": func(f *forgery) {
		done := false
		f.of(mtpAlone, func(r *engine.Record) { // the rejected drafts are replaced by what came
			if n := int(r.Accepted); !done && len(r.EmittedIDs) == n+1 && n < len(r.ProposedIDs) {
				done = true
				r.ProposedIDs[n], r.TargetIDs[n] = r.NextID, r.NextID
				r.Accepted++
				r.RealAccepted, r.ForcedAccepted = r.Accepted, r.Accepted
				r.NextID, r.RealNextID = r.TargetIDs[r.Accepted], r.TargetIDs[r.Accepted]
				if int(r.Accepted) == len(r.ProposedIDs) {
					r.NextKind = engine.NextBonus
				}
			}
		})
		f.refigure(1)
	},
	"tok/s 8 % up":        func(f *forgery) { p := f.point(mtpAlone); p.TokS, p.RatioToPlain = p.TokS*1.08, p.RatioToPlain*1.08 },
	"ratio alone":         func(f *forgery) { f.point(mtpAlone).RatioToPlain *= 1.5 },
	"decode ratio":        func(f *forgery) { f.point(mtpAlone).DecodeRatio *= 1.1 },
	"draft share":         func(f *forgery) { f.point(mtpAlone).DraftShare /= 2 },
	"fresh accept length": func(f *forgery) { f.point(mtpAlone).FreshAcceptLength += 0.3 },
	"wall time 30 % down": func(f *forgery) { f.refigure(0.7) },
	"plain wall time up": func(f *forgery) {
		p := f.point(plainAlone)
		p.Seconds[0] = p.Seconds[0]*2 + 3
		f.refigure(1)
	},
	"wall times left out": func(f *forgery) {
		for i := range f.sum.Runs {
			f.sum.Runs[i].Seconds = nil
		}
	},
	"all times a tenth": func(f *forgery) {
		for _, r := range f.records {
			r.DraftNs, r.VerifyNs, r.TotalNs = r.DraftNs/20, r.VerifyNs/20, r.TotalNs/20
		}
		f.refigure(1.0 / 20)
	},
	"drafting left out of the times": func(f *forgery) {
		f.of(mtpAlone, func(r *engine.Record) {
			d := max(0, r.DraftNs-2000)
			r.DraftNs, r.TotalNs = r.DraftNs-d, r.TotalNs-d
		})
		f.refigure(1)
	},
	"a weak point left out": func(f *forgery) {
		f.sum.Runs = slices.DeleteFunc(f.sum.Runs, func(p PointResult) bool { return strings.HasPrefix(p.String(), "1-ngram") })
	},
	"tok/s of a class up":          func(f *forgery) { f.point(mtpAlone).Classes[0].TokS *= 1.05 },
	"ratio of a class up":          func(f *forgery) { f.point(mtpAlone).Classes[1].RatioToPlain *= 1.05 },
	"tokens of a class up":         func(f *forgery) { f.point(mtpAlone).Classes[0].Tokens++ },
	"accept length of a class up":  func(f *forgery) { f.point(mtpAlone).Classes[0].AcceptLength += 0.01 },
	"first position of a class up": func(f *forgery) { f.point(mtpAlone).Classes[1].AcceptanceByPosition[0] += 0.01 },
	"a class left out":             func(f *forgery) { p := f.point(mtpAlone); p.Classes = p.Classes[:1] },
	"no line by class":             func(f *forgery) { f.point(mtpAlone).Classes = nil },
	"a class that no prompt is of": func(f *forgery) { f.point(mtpAlone).Classes[0].Class = "better" },
	"drafting of a class left out": func(f *forgery) { f.point(mtpAlone).Classes[0].DraftShare /= 2 },
	"exact in a simulated run":     func(f *forgery) { yes := true; f.point(mtpDrawn).Exact = &yes },
	"stamp removed": func(f *forgery) {
		f.of(mtpDrawn, func(r *engine.Record) { r.Simulated, r.Simulation = false, "" })
		f.unsimulated()
	},
	"stamp removed, forced outcome told as the rule's": func(f *forgery) {
		f.of(mtpDrawn, func(r *engine.Record) {
			r.Simulated, r.Simulation = false, ""
			r.RealAccepted, r.RealNextID = r.Accepted, r.NextID
			copy(r.TargetIDs, r.ProposedIDs[:r.Accepted])
			if int(r.Accepted) < len(r.TargetIDs) {
				r.TargetIDs[r.Accepted] = r.NextID
			}
		})
		f.unsimulated()
	},
	"work doubled": func(f *forgery) {
		f.of(mtpAlone, func(r *engine.Record) { r.TargetWork.MACs *= 2 })
	},
	"work halved": func(f *forgery) {
		f.of(mtpAlone, func(r *engine.Record) {
			for _, c := range []*uint64{&r.TargetWork.MACs, &r.TargetWork.MatMulRows, &r.TargetWork.KVTokens, &r.TargetWork.LogitRows, &r.TargetWork.AttendRows, &r.TargetWork.DeltaRows} {
				*c /= 2
			}
		})
	},
	"draft work left out": func(f *forgery) {
		f.of(mtpAlone, func(r *engine.Record) {
			if r.Phase == engine.Decode {
				r.DraftWork = r.DraftWork.Add(r.DraftWork)
			}
		})
	},
	"a step left out": func(f *forgery) {
		n := 0
		f.drop(func(r *engine.Record) bool {
			if audit.PointOf(r.Request) == mtpAlone && r.Phase == engine.Decode {
				n++
			}
			return n == 3 && audit.PointOf(r.Request) == mtpAlone && r.Phase == engine.Decode
		})
		f.refigure(1)
	},
	"two steps as one": func(f *forgery) { f.merge(); f.refigure(1) },
	"two steps as one, k 7": func(f *forgery) {
		f.merge()
		f.rename("mtp.k3", "mtp.k7")
		f.configure(func(c *Config) { c.Strategies[0].K = []int{7} })
		for i := range f.sum.Runs {
			if f.sum.Runs[i].Strategy == 0 {
				f.sum.Runs[i].K = 7
			}
		}
		f.refigure(1)
	},
	"k told as 5": func(f *forgery) {
		f.rename("mtp.k3", "mtp.k5")
		f.configure(func(c *Config) { c.Strategies[0].K = []int{5} })
		for i := range f.sum.Runs {
			if f.sum.Runs[i].Strategy == 0 {
				f.sum.Runs[i].K = 5
			}
		}
	},
	"drafts of failed steps dropped": func(f *forgery) {
		f.of(mtpAlone, func(r *engine.Record) {
			if r.Phase == engine.Decode && r.Accepted == 0 && len(r.ProposedIDs) > 0 {
				r.KPlanned, r.KExecuted, r.TreeNodes, r.ProposedIDs = 0, 0, 0, nil
				r.BatchRows -= r.Rows - 1
				r.Rows, r.NextKind = 1, engine.NextSampled
				r.Hashes, r.Gaps, r.TargetIDs = r.Hashes[:1], r.Gaps[:1], r.TargetIDs[:1]
			}
		})
		f.refigure(1)
	},
	"a request removed": func(f *forgery) {
		id := mtpAlone + ".r0/" + f.prompts[1].ID
		f.drop(func(r *engine.Record) bool { return r.Request == id })
		f.outputs = slices.DeleteFunc(f.outputs, func(o output) bool { return o.Request == id })
		f.refigure(1)
	},
	"prompts changed":             func(f *forgery) { f.prompts[0].IDs[3]++ },
	"model hash":                  func(f *forgery) { f.provenance("model_hash", "0") },
	"arithmetic":                  func(f *forgery) { f.provenance("arithmetic", "cpu-other") },
	"kernels told by the summary": func(f *forgery) { f.sum.Provenance["kernels"] = "cuda" },
	"another sampling":            func(f *forgery) { f.configure(func(c *Config) { c.Sampling.Temperature, c.Rule = 0.8, "coupled" }) },
	"other seeds":                 func(f *forgery) { f.configure(func(c *Config) { c.Sampling.Seed = 99 }) },
	"another rule": func(f *forgery) {
		f.of(mtpAlone, func(r *engine.Record) { r.Rule = "coupled" })
	},
	"simulation told as another": func(f *forgery) {
		length := 2.7
		f.configure(func(c *Config) { c.Strategies[2].Simulate.Length = &length })
		f.of(mtpDrawn, func(r *engine.Record) { r.Simulation = "length=2.7" })
		for i := range f.sum.Runs {
			if f.sum.Runs[i].Strategy == 2 {
				f.sum.Runs[i].Simulation = "length=2.7"
			}
		}
	},
	"cached prompt told as read": func(f *forgery) {
		f.of(mtpAlone, func(r *engine.Record) {
			if r.SeqStep == 0 {
				r.Cached, r.Position, r.Rows = 8, 8, r.Rows-8
				r.BatchRows, r.PrefillTokens = r.BatchRows-8, r.PrefillTokens-8
			}
		})
	},
	"records of a step in another order": func(f *forgery) {
		for i := range f.records[1:] {
			a, b := f.records[i], f.records[i+1]
			if a.Request == b.Request && audit.PointOf(a.Request) == mtpAlone && a.Phase == engine.Decode {
				a.Step, b.Step = b.Step, a.Step
				a.SeqStep, b.SeqStep = b.SeqStep, a.SeqStep
				f.records[i], f.records[i+1] = b, a
				return
			}
		}
	},
	"everything twice": func(f *forgery) {
		n := f.records[len(f.records)-1].Step + 1
		for _, r := range slices.Clone(f.records) {
			c := *r
			c.Step += n
			f.records = append(f.records, &c)
		}
		f.refigure(1)
	},
	"a point's output as another's": func(f *forgery) {
		for i := range f.outputs {
			if strings.HasPrefix(f.outputs[i].Request, mtpDrawn) {
				f.outputs[i].IDs = f.outputs[0].IDs
			}
		}
	},
	"rows of rejected drafts made up": func(f *forgery) {
		f.of(mtpAlone, func(r *engine.Record) {
			if n := int(r.Accepted) + 1; n < len(r.Hashes) {
				r.Hashes[n] ^= 1
			}
		})
	},
}

// unsimulated takes the simulation out of configuration and summary.
func (f *forgery) unsimulated() {
	f.configure(func(c *Config) { c.Strategies[2].Simulate = nil })
	f.sum.Simulated = false
	for i := range f.sum.Runs {
		yes := true
		f.sum.Runs[i].Simulation, f.sum.Runs[i].Simulated, f.sum.Runs[i].Exact = "", false, &yes
	}
	f.refigure(1)
}

func (f *forgery) provenance(key, value string) {
	f.meta.Provenance[key], f.sum.Provenance[key] = value, value
}

// rename changes the names of points.
func (f *forgery) rename(from, to string) {
	for _, r := range f.records {
		r.Request = strings.Replace(r.Request, from, to, 1)
	}
	for i := range f.outputs {
		f.outputs[i].Request = strings.Replace(f.outputs[i].Request, from, to, 1)
	}
}

// merge tells each whole verification and the one after it as one of more drafts,
// with the work of both.
func (f *forgery) merge() {
	var out []*engine.Record
	for _, r := range f.records {
		var a *engine.Record
		if len(out) > 0 {
			a = out[len(out)-1]
		}
		if a == nil || audit.PointOf(r.Request) != mtpAlone || a.Request != r.Request || a.Phase != engine.Decode ||
			a.NextKind != engine.NextBonus || len(a.ProposedIDs) != 3 || len(r.ProposedIDs) != 3 {
			out = append(out, r)
			continue
		}
		n := a.Accepted + 1
		a.ProposedIDs = slices.Concat(a.ProposedIDs, []int32{a.NextID}, r.ProposedIDs)
		a.TargetIDs, a.Hashes, a.Gaps = slices.Concat(a.TargetIDs, r.TargetIDs), slices.Concat(a.Hashes, r.Hashes), slices.Concat(a.Gaps, r.Gaps)
		a.EmittedIDs = slices.Concat(a.EmittedIDs, r.EmittedIDs)
		a.Accepted = n + r.Accepted
		a.RealAccepted, a.ForcedAccepted = a.Accepted, a.Accepted
		a.NextID, a.RealNextID, a.NextKind = r.NextID, r.NextID, r.NextKind
		a.KPlanned, a.KExecuted, a.TreeNodes, a.Rows, a.BatchRows = 7, 7, 7, 8, 8
		a.TargetWork, a.DraftWork = a.TargetWork.Add(r.TargetWork), a.DraftWork.Add(r.DraftWork)
		a.DraftNs, a.VerifyNs, a.TotalNs = a.DraftNs+r.DraftNs, a.VerifyNs+r.VerifyNs, a.TotalNs+r.TotalNs
	}
	f.records = out
	f.renumber()
}

// No forgery passes.
func TestForgeries(t *testing.T) {
	for name, forge := range forgeries {
		t.Run(name, func(t *testing.T) {
			f := newForgery(t)
			forge(f)
			f.write()
			res, err := Audit(t.Context(), f.dir, AuditOptions{Replay: audit.ReplayForced})
			if err != nil {
				t.Log("error:", err)
				return
			}
			t.Log(res.Verdict, findings(res))
			if res.Verdict == audit.Pass {
				t.Logf("%+v %q", res.Work.Tests, res.Work.Blind)
			}
			require.NotEqual(t, audit.Pass, res.Verdict)
			if name != "model hash" && name != "arithmetic" {
				require.Equal(t, audit.Fail, res.Verdict)
			}
		})
	}
}
