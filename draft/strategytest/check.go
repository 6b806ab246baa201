package strategytest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"exacta.dev/exacta/draft"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/kernels/cpu"
)

// Run checks the strategy whose configuration newStrategy returns, with defaults
// filled in, and fails t with what is wrong.
func Run(t *testing.T, newStrategy func() draft.Strategy) {
	t.Helper()
	if err := Check(newStrategy); err != nil {
		t.Fatal(err)
	}
}

// Check is Run without a test: it returns the first breach of the contract.
func Check(newStrategy func() draft.Strategy) (err error) {
	if err := newStrategy().Validate(); err != nil {
		return fmt.Errorf("the defaults are not valid: %w", err)
	}
	be, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, be.Close()) }()
	m, err := model.Load(be, tiny(), model.Options{MaxTokens: maxTokens, MTP: true})
	if err != nil {
		return err
	}
	for _, c := range cases() {
		if err := check(m, c, newStrategy); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

// check runs a case plainly, and then with the strategy: unaided and guided,
// twice each.
func check(m *model.Model, c scenario, newStrategy func() draft.Strategy) error {
	plain, err := drive(m, c, nil)
	if err != nil {
		return fmt.Errorf("plain decoding: %w", err)
	}
	for _, guide := range []*guide{nil, newGuide(plain)} {
		var before []string
		for range 2 {
			d, err := provision(m, newStrategy())
			if d == nil || err != nil {
				return err
			}
			watched, spy := watch(d, m.Config.VocabSize, guide)
			got, err := drive(m, c, watched)
			if spy.err != nil {
				return spy.err
			}
			if err != nil {
				return err
			}
			if err := equal(plain, got); err != nil {
				return err
			}
			if before != nil && !slices.Equal(before, spy.drafts) {
				return fmt.Errorf("the same requests got other drafts the second time: %s", firstOther(before, spy.drafts))
			}
			before = spy.drafts
		}
	}
	return nil
}

// provision makes a drafter; nil is plain decoding.
func provision(m *model.Model, s draft.Strategy) (engine.Drafter, error) {
	d, err := s.Provision(draft.Env{Backend: m.Backend(), Model: m, Vocab: m.Config.VocabSize})
	if err != nil {
		return nil, fmt.Errorf("provision: %w", err)
	}
	if d != nil && d.Name() == "" {
		return nil, errors.New("the drafter has no name")
	}
	return d, nil
}

func firstOther(a, b []string) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("first %s, then %s", a[i], b[i])
		}
	}
	return fmt.Sprintf("%d drafts, then %d", len(a), len(b))
}
