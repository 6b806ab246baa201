package model

import (
	"fmt"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/kernels"
)

// MTPHead is a loaded multi-token-prediction module: the model's own, or one from a
// directory of its own, such as a quantised one.
type MTPHead struct {
	m *Model
	w *mtpWeights
}

// LoadMTP returns the model's module for an empty where, which must have been loaded
// with the model, else that of the directory where (a head of kind mtp), with its own
// LM head if it has one; a head is loaded once.
func (m *Model) LoadMTP(where string) (*MTPHead, error) {
	if where == "" {
		if m.mtp == nil {
			return nil, fmt.Errorf("model %s has no MTP module (mtp.* tensors); use another strategy", m.Name)
		}
		return &MTPHead{m, m.mtp}, nil
	}
	w, err := loadHead(m, checkpoint.HeadMTP, where, m.loadMTPHead)
	if err != nil {
		return nil, err
	}
	return &MTPHead{m, w}, nil
}

// mtpSource is a head whose layer has the model's geometry.
type mtpSource struct {
	HeadSource
	c checkpoint.Config
}

// Config implements Source.
func (s mtpSource) Config() checkpoint.Config { return s.c }

func (m *Model) loadMTPHead(l *loader, src HeadSource) *mtpWeights {
	t, err := traitsOf(m.Config)
	if err != nil {
		l.err = err
		return nil
	}
	if t.mtp == nil {
		l.err = fmt.Errorf("model %s is of family %s, which has no MTP module", m.Name, m.Config.Family)
		return nil
	}
	l.src = mtpSource{src, m.Config}
	w := l.loadMTP(t, m.ropes)
	w.head, w.vocab = m.lmHead(l, src), src.Head().DraftVocab
	w.ids = l.tokens(src, "d2t", true)
	return w
}

// Layer returns the cache geometry of the module's one layer.
func (h *MTPHead) Layer() kernels.LayerSpec { return h.w.block.cache }

// Taps returns where the module reads the target: at all residual streams behind the
// last layer, or, where there is one, nowhere but at the final hidden state.
func (h *MTPHead) Taps() []int {
	if h.w.mixer == nil {
		return nil
	}
	return allStreams(len(h.m.blocks), h.m.Config.Streams.Count)
}

// Tokens returns the token of each row of the LM head; nil if row i is token i.
func (h *MTPHead) Tokens() []int32 { return h.w.ids }

// New returns the module with activations for passes of at most rows rows and logits
// of at most spans rows.
func (h *MTPHead) New(rows, spans int) (*MTP, error) { return h.m.newMTP(h.w, rows, spans) }
