package experiments

import (
	"errors"
	"fmt"
	"strings"

	"exacta.dev/exacta/draft/quant"
	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/kernels"
)

// bf16Head is the head that one of 4 bits is made from.
type bf16Head struct {
	config checkpoint.HeadConfig
	// files stay open for the tensors' data; nil for a model's own module, whose
	// tensors are in the model's file.
	files model.HeadSource
	loads []int   // its parameters, among the recorder's loads
	ids   []int32 // tokens of the rows of its LM head; nil: row i is token i
}

// Close closes the files.
func (b *bf16Head) Close() error {
	if b.files == nil {
		return nil
	}
	return b.files.Close()
}

// most is the longest draft.
func (b *bf16Head) most() int {
	switch b.config.Kind {
	case checkpoint.HeadMedusa:
		return b.config.Heads
	case checkpoint.HeadDFlash, checkpoint.HeadDSpark:
		return b.config.Block - 1
	}
	return kernels.WindowTokens - 1
}

// open loads the BF16 head and finds its parameters.
func (z *quantizer) open() (b *bf16Head, err error) {
	kind, c := checkpoint.HeadKind(z.o.Head), z.m.Config
	b = &bf16Head{}
	if kind == checkpoint.HeadMTP && z.o.From == "" {
		b.config, err = checkpoint.ParseHeadConfig(fmt.Appendf(nil, `{"architectures": ["MTPDraftModel"], "model_type": %q, "hidden_size": %d, "vocab_size": %d}`, kind, c.HiddenSize, c.VocabSize))
	} else if b.files, err = z.m.OpenHead(kind, z.o.From); err == nil {
		b.config = b.files.Head()
	}
	if err == nil && b.config.Text == nil {
		err = fmt.Errorf("%s has random weights and no files; the drafters make such a head of 4 bits by head: %s", b.files.Name(), model.RandomInt4Head)
	}
	first := len(z.rec.Loads())
	if err == nil {
		b.ids, err = headTokens(z.m, kind, z.o.From)
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	b.loads = z.parameters(b.files == nil, first)
	return b, nil
}

// headTokens loads a head and returns the tokens of its LM head.
func headTokens(m *model.Model, kind checkpoint.HeadKind, where string) ([]int32, error) {
	var h interface{ Tokens() []int32 }
	var err error
	switch kind {
	case checkpoint.HeadMTP:
		h, err = m.LoadMTP(where)
	case checkpoint.HeadEagle:
		h, err = m.LoadEagle(where)
	case checkpoint.HeadEagle3:
		h, err = m.LoadEagle3(where)
	case checkpoint.HeadMedusa:
		h, err = m.LoadMedusa(where)
	case checkpoint.HeadDSpark:
		h, err = m.LoadDSpark(where)
	default:
		h, err = m.LoadDFlash(where)
	}
	if err != nil {
		return nil, err
	}
	return h.Tokens(), nil
}

// parameters lists what was loaded for the head: the model's own module, or everything
// from load first on; and the target's LM head where it has none of its own.
func (z *quantizer) parameters(own bool, first int) (list []int) {
	lm, have := -1, false
	for i, l := range z.rec.Loads() {
		name := l.Parts[0].Name
		switch {
		case i < first && name == z.targetLM():
			lm = i
		case l.Use == kernels.Table: // rotary angles
		case own && strings.HasPrefix(name, "mtp."), !own && i >= first:
			list = append(list, i)
			have = have || quant.IsLMHead(name)
		}
	}
	if !have {
		list = append(list, lm)
	}
	return list
}

// targetLM is the name of the target's LM head.
func (z *quantizer) targetLM() string {
	if z.m.Config.TieEmbeddings {
		return "model.embed_tokens.weight"
	}
	return "lm_head.weight"
}

// write quantises and writes the head.
func (z *quantizer) write(corpus []int32) error {
	h := &quant.Head{Config: z.from.config, Method: z.o.Method, Options: quant.Options{Group: z.o.Group, ZeroPoints: z.o.ZeroPoints}}
	rows, err := z.vocabulary(h, corpus)
	if err != nil {
		return fmt.Errorf("vocab: %w", err)
	}
	var whole int64
	loads := z.rec.Loads()
	for _, i := range z.from.loads {
		l := loads[i]
		for _, p := range l.Parts {
			z.show("quantise " + p.Name)
			if err := z.part(h, l, p, rows); err != nil {
				return fmt.Errorf("quantize: %w", err)
			}
			if !model.Gathered(p.Name) {
				whole += 2 * int64(p.Rows) * int64(p.Cols)
			}
		}
	}
	if err := z.scalars(h); err != nil {
		return fmt.Errorf("quantize: %w", err)
	}
	z.res.Bytes = pairOf(float64(whole), float64(h.Bytes()))
	return h.Write(z.o.Out)
}

// scalars copies what a head's file has beside what backends load.
func (z *quantizer) scalars(h *quant.Head) error {
	const bias = "confidence_head.proj.bias" // of a DSpark head
	if z.from.files == nil || !z.from.files.Has(bias) {
		return nil
	}
	p, err := z.from.files.Matrix(bias, 1, 1)
	if err != nil {
		return err
	}
	return h.Add(quant.Loaded{}, p, bias, nil)
}

// part quantises one tensor; rows are those of an LM head that are kept.
func (z *quantizer) part(h *quant.Head, l quant.Loaded, p kernels.Source, rows []int32) error {
	name := p.Name
	if name == z.targetLM() {
		name = "lm_head.weight"
	}
	if files := z.from.files; files != nil && files.Has(p.Name) {
		var err error
		if p, err = files.Matrix(p.Name, p.Rows, p.Cols); err != nil {
			return err
		}
	}
	if !quant.ByToken(name) {
		rows = nil
	}
	return h.Add(l, p, name, rows)
}

// vocabulary sets the tokens of the LM head and returns the rows to keep of the BF16
// one; nil keeps all.
func (z *quantizer) vocabulary(h *quant.Head, corpus []int32) ([]int32, error) {
	ids := z.from.ids
	z.res.Vocab = z.from.config.DraftVocab
	if z.o.Vocab == 0 {
		if ids != nil {
			h.SetTokens(ids)
		}
		return nil, nil
	}
	if ids == nil {
		ids = make([]int32, z.entry.Vocab())
		for i := range ids {
			ids[i] = int32(i)
		}
	}
	keep, err := quant.Frequent(corpus, ids, z.o.Vocab)
	if err != nil {
		return nil, err
	}
	row := make(map[int32]int32, len(ids))
	for i, id := range ids {
		row[id] = int32(i)
	}
	rows := make([]int32, len(keep))
	for i, id := range keep {
		rows[i] = row[id]
	}
	h.SetTokens(keep)
	z.res.Vocab = len(keep)
	return rows, nil
}
