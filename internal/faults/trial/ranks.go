package trial

import (
	"time"

	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cpu"
	"exacta.dev/exacta/kernels/ranks"
)

// ranked makes the run on several ranks, each of which loads its part of the
// model. The ranks may drift apart: what becomes of it is in the records.
func (m *Machine) ranked(p *play, w Wiring) error {
	open := func(int) (kernels.Backend, error) { return cpu.New(cpu.Options{Threads: 1}) }
	set := make([]error, p.setup.Ranks)
	err := ranks.Run(p.setup.Ranks, open, ranks.Options{Timeout: 10 * time.Second}, func(be *ranks.Backend) error {
		own := w
		if w.Ranked != nil {
			own = w.Ranked(be.Rank())
		}
		mine := &Machine{Entry: m.Entry, Backend: be, Tokens: m.Tokens, pool: m.pool}
		var err error
		if mine.Model, err = model.Load(be, m.Entry.Source, model.Options{MaxTokens: Context, MTP: true}); err == nil {
			err = p.on(mine, be, own)
		}
		set[be.Rank()] = err
		return err
	})
	for _, e := range set {
		if e != nil {
			return e
		}
	}
	if err != nil && p.res.Err == "" {
		p.res.Err = err.Error()
	}
	return nil
}
