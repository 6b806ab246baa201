package engine_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/draft"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/sample"
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cpu"
	"exacta.dev/exacta/kernels/fakedev"
	"exacta.dev/exacta/kernels/ranks"
	"exacta.dev/exacta/verify"
)

// tandem is a run of one model on several ranks.
type tandem struct {
	size     int
	device   bool // on fake devices
	source   func() (model.Source, error)
	cfg      engine.Config
	reqs     []engine.Request
	rules    map[string]string // by request; greedy is the default
	oneByOne bool              // each request runs before the next is submitted
	recorder func(rec *engine.Record) error
	// change may change what one rank does.
	change func(rank int, cfg *engine.Config, reqs []engine.Request)

	// What came of it.
	out  map[string]*outcome           // records of rank 0
	seqs []map[string]*engine.Sequence // by rank
	work []kernels.Counters            // by rank
	mem  []kernels.Memory              // by rank
	errs []error                       // by rank
}

func (x *tandem) open(int) (kernels.Backend, error) {
	be, err := cpu.New(cpu.Options{Threads: 1})
	if err == nil && x.device {
		return fakedev.New(be), nil
	}
	return be, err
}

// run plays the requests on all ranks.
func (x *tandem) run() error {
	x.out = map[string]*outcome{}
	for _, q := range x.reqs {
		x.out[q.ID] = &outcome{}
	}
	for range x.size {
		x.seqs = append(x.seqs, map[string]*engine.Sequence{})
	}
	x.work, x.mem, x.errs = make([]kernels.Counters, x.size), make([]kernels.Memory, x.size), make([]error, x.size)
	return ranks.Run(x.size, x.open, ranks.Options{Timeout: 20 * time.Second}, func(be *ranks.Backend) error {
		err := x.rank(be)
		x.errs[be.Rank()] = err
		return err
	})
}

func (x *tandem) record(rec *engine.Record) error {
	if x.recorder != nil {
		if err := x.recorder(rec); err != nil {
			return err
		}
	}
	o := x.out[rec.Request]
	o.records = append(o.records, rec)
	o.tokens = append(o.tokens, rec.EmittedIDs...)
	o.hashes = append(o.hashes, rec.Hashes[:len(rec.EmittedIDs)]...)
	return nil
}

// rank is what each rank does.
func (x *tandem) rank(be *ranks.Backend) (err error) {
	src, err := x.source()
	if err != nil {
		return err
	}
	m, err := model.Load(be, src, model.Options{MaxTokens: context, MTP: true})
	if err != nil {
		return err
	}
	cfg, reqs := x.cfg, append([]engine.Request(nil), x.reqs...)
	cfg.Ranks = be
	for i := range reqs {
		if name := x.rules[reqs[i].ID]; name != "" {
			if reqs[i].Rule, err = verify.New(name); err != nil {
				return err
			}
		}
	}
	if x.change != nil {
		x.change(be.Rank(), &cfg, reqs)
	}
	drafters := map[string]engine.Drafter{}
	for _, name := range x.drafters() {
		s, err := draft.New(name)
		if err != nil {
			return err
		}
		if drafters[name], err = s.Provision(draft.Env{Backend: be, Model: m, Vocab: m.Config.VocabSize}); err != nil {
			return err
		}
	}
	greedy, err := verify.New("greedy")
	if err != nil {
		return err
	}
	e, err := engine.New(m, cfg, drafters, greedy, engine.RecorderFunc(x.record), engine.Listener{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	for _, q := range reqs {
		seq, err := e.Submit(q)
		if err != nil {
			return err
		}
		x.seqs[be.Rank()][q.ID] = seq
		if be.Rank() == 0 {
			x.out[q.ID].seq = seq
		}
		if x.oneByOne {
			if err := e.Run(nil); err != nil {
				return err
			}
		}
	}
	err = e.Run(nil)
	x.work[be.Rank()], x.mem[be.Rank()] = be.Work(), be.Memory()
	return err
}

func tinySource() (model.Source, error) { return tiny(), nil }

// twinned requires that every record carries equal hashes of all ranks, and that
// they are those of what the record says.
func (x *tandem) twinned(t *testing.T) {
	t.Helper()
	for id, o := range x.out {
		for _, rec := range o.records {
			require.Len(t, rec.RankHashes, x.size)
			for _, h := range rec.RankHashes {
				require.Equal(t, engine.OutcomeHash(rec.Sequence, rec.Accepted, rec.NextID, rec.EmittedIDs), h, "%s, step %d", id, rec.Step)
			}
		}
		for r := range x.size {
			require.Equal(t, o.tokens, x.seqs[r][id].Output(), "%s on rank %d", id, r)
		}
	}
}

// mixed are requests of every drafter, greedy and sampled.
func mixed() []engine.Request {
	return []engine.Request{
		{ID: "a", Prompt: prompt(50, 5), MaxNew: 150, Drafter: "mtp", K: 3},
		{ID: "b", Prompt: prompt(63, 6), MaxNew: 120, Drafter: "ngram", K: 4},
		{ID: "c", Prompt: prompt(20, 7), MaxNew: 150},
		{ID: "d", Prompt: prompt(40, 8), MaxNew: 150, Drafter: "mtp", K: 5, Params: sample.Params{Temperature: 0.7, Seed: 11}},
		{ID: "e", Prompt: prompt(30, 9), MaxNew: 60, Drafter: "eagle3", K: 3},
		{ID: "f", Prompt: prompt(40, 10), MaxNew: 60, Drafter: "dflash", K: 4},
		{ID: "g", Prompt: prompt(10, 11), MaxNew: 60, Drafter: "medusa", K: 2},
		{ID: "h", Prompt: prompt(61, 12), MaxNew: 60, Drafter: "layerskip", K: 3},
		{ID: "i", Prompt: prompt(45, 13), MaxNew: 60, Drafter: "model", K: 4},
		{ID: "j", Prompt: prompt(33, 14), MaxNew: 40, Drafter: "eagle", K: 3},
		{ID: "k", Prompt: prompt(29, 15), MaxNew: 40, Drafter: "dspark", K: 5},
	}
}

// drafters are the names of those that the requests need.
func (x *tandem) drafters() []string {
	var names []string
	for _, q := range x.reqs {
		if q.Drafter != "" && !slices.Contains(names, q.Drafter) {
			names = append(names, q.Drafter)
		}
	}
	return names
}
