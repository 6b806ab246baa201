package experiments

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"unicode/utf8"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/registry"
)

// sequences reads what is to be exported.
func (o HiddenOptions) sequences(e *registry.Entry) (out []Prompt, err error) {
	switch {
	case o.IDs != "":
		out, err = idLines(o.IDs, e.Source.Config().VocabSize)
	case o.Text != "":
		out, err = o.pieces(e)
	default:
		out, err = LoadPrompts(Prompts{File: o.Prompts, MaxTokens: o.Length}, e)
	}
	if err != nil {
		return nil, err
	}
	if o.Limit > 0 {
		out = out[:min(o.Limit, len(out))]
	}
	return out, nil
}

// pieces cuts a text into pieces of Length tokens.
func (o HiddenOptions) pieces(e *registry.Entry) (out []Prompt, err error) {
	if e.Tokenizer == nil {
		return nil, fmt.Errorf("text: model %s has no tokenizer; give ids", e.Name)
	}
	text, err := os.ReadFile(o.Text)
	if err != nil {
		return nil, fmt.Errorf("text: %w", err)
	}
	if !utf8.Valid(text) {
		return nil, fmt.Errorf("text %s is not valid UTF-8", o.Text)
	}
	ids := e.Tokenizer.Encode(string(text), false)
	if len(ids) == 0 {
		return nil, fmt.Errorf("text %s is empty", o.Text)
	}
	for len(ids) > 0 {
		n := min(o.Length, len(ids))
		out = append(out, Prompt{ID: fmt.Sprintf("piece-%d", len(out)), IDs: ids[:n]})
		ids = ids[n:]
	}
	return out, nil
}

// idLines reads a file with an array of token ids on each line.
func idLines(name string, vocab int) (out []Prompt, err error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("ids: %w", err)
	}
	for i, line := range bytes.Split(text, []byte("\n")) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		p := Prompt{ID: fmt.Sprintf("line-%d", i+1)}
		if err := json.Unmarshal(line, &p.IDs); err != nil {
			return nil, fmt.Errorf("ids: %s:%d: %w; want an array of integers", name, i+1, err)
		}
		if len(p.IDs) == 0 {
			return nil, fmt.Errorf("ids: %s:%d: no token ids", name, i+1)
		}
		for at, id := range p.IDs {
			if id < 0 || int(id) >= vocab {
				return nil, fmt.Errorf("ids: %s:%d: id %d at position %d is outside the vocabulary 0..%d", name, i+1, id, at, vocab-1)
			}
		}
		out = append(out, p)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("ids: %s: no token ids", name)
	}
	return out, nil
}

// hiddenWriter collects sequences, in order, and writes full shards.
type hiddenWriter struct {
	res     HiddenResult
	limit   int64
	next    int // the sequence that is written next
	waiting map[int]hiddenSequence
	shard   []hiddenSequence
	bytes   int64
	err     error
}

// hiddenSequence is a finished sequence: its rows, and how many tokens were given.
type hiddenSequence struct {
	*hiddenRows
	prompt int
}

// newHiddenWriter makes the directory; one that holds an export is refused.
func newHiddenWriter(o HiddenOptions, e *registry.Entry, m *model.Model) (*hiddenWriter, error) {
	if err := os.MkdirAll(o.Out, 0o755); err != nil {
		return nil, fmt.Errorf("hidden: %w", err)
	}
	old, err := filepath.Glob(filepath.Join(o.Out, "hidden-*.safetensors"))
	if _, missing := os.Stat(filepath.Join(o.Out, hiddenManifest)); err == nil && missing == nil || len(old) > 0 {
		return nil, fmt.Errorf("hidden: %s holds an export already; give another directory", o.Out)
	}
	info := m.Backend().Info()
	return &hiddenWriter{limit: o.ShardBytes, waiting: map[int]hiddenSequence{}, res: HiddenResult{
		Format: HiddenFormat, Model: e.Name, ModelHash: e.Hash, Backend: info.Name, Arithmetic: info.Arithmetic, Version: o.Version, Revision: revision(),
		Hidden: m.Config.HiddenSize, Taps: append([]int{}, o.Taps...), TopK: o.TopK, Temperature: o.Temperature, Seed: o.Seed, Out: o.Out, Files: []HiddenFile{},
	}}, nil
}

// finished takes in sequence i. Sequences may end in any order.
func (w *hiddenWriter) finished(i, prompt int, r *hiddenRows) {
	w.waiting[i] = hiddenSequence{r, min(prompt, len(r.tokens))}
	for {
		s, ok := w.waiting[w.next]
		if !ok {
			return
		}
		delete(w.waiting, w.next)
		w.next++
		w.add(s)
	}
}

// add appends a sequence to the shard, and writes a full one.
func (w *hiddenWriter) add(s hiddenSequence) {
	if len(s.tokens) == 0 || w.err != nil {
		return
	}
	w.shard = append(w.shard, s)
	w.res.Sequences++
	w.res.Tokens += len(s.tokens)
	w.res.Continued += len(s.tokens) - s.prompt
	w.bytes += int64(4*len(s.tokens) + 2*len(s.hidden) + 2*len(s.taps) + 8*len(s.topIDs))
	if w.bytes >= w.limit {
		w.err = w.flush()
	}
}

// close writes what is left and the manifest. After an interrupt there may be
// sequences that ended before one in front of them: they count too.
func (w *hiddenWriter) close() error {
	for _, i := range slices.Sorted(maps.Keys(w.waiting)) {
		w.add(w.waiting[i])
	}
	if err := errors.Join(w.err, w.flush()); err != nil {
		return err
	}
	return w.res.writeManifest()
}

// flush writes the shard, if there is anything in it.
func (w *hiddenWriter) flush() (err error) {
	if len(w.shard) == 0 {
		return nil
	}
	meta, err := w.res.metadata()
	if err != nil {
		return fmt.Errorf("hidden: %w", err)
	}
	file := HiddenFile{Name: fmt.Sprintf("hidden-%05d.safetensors", len(w.res.Files)+1), Sequences: len(w.shard)}
	tensors := w.tensors()
	for _, s := range w.shard {
		file.Tokens += len(s.tokens)
	}
	w.shard, w.bytes = nil, 0
	f, err := os.Create(filepath.Join(w.res.Out, file.Name))
	if err != nil {
		return fmt.Errorf("hidden: %w", err)
	}
	defer func() {
		if closed := f.Close(); err == nil && closed != nil {
			err = fmt.Errorf("hidden: %w", closed)
		}
	}()
	if err := checkpoint.WriteSafetensors(f, tensors, meta); err != nil {
		return fmt.Errorf("hidden: %s: %w", f.Name(), err)
	}
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("hidden: %w", err)
	}
	file.Bytes = info.Size()
	w.res.Files = append(w.res.Files, file)
	return nil
}

// tensors lays the shard's sequences end to end.
func (w *hiddenWriter) tensors() []checkpoint.Data {
	var all hiddenRows
	starts, prompts := []int32{0}, make([]int32, 0, len(w.shard))
	for _, s := range w.shard {
		all.tokens, all.hidden, all.taps = append(all.tokens, s.tokens...), append(all.hidden, s.hidden...), append(all.taps, s.taps...)
		all.topIDs, all.topLogits = append(all.topIDs, s.topIDs...), append(all.topLogits, s.topLogits...)
		starts, prompts = append(starts, int32(len(all.tokens))), append(prompts, int32(s.prompt))
	}
	n, h := len(all.tokens), w.res.Hidden
	out := []checkpoint.Data{
		int32Data("tokens", []int{n}, all.tokens), int32Data("starts", []int{len(starts)}, starts), int32Data("prompts", []int{len(prompts)}, prompts),
		{Name: "hidden", DType: checkpoint.BF16, Shape: []int{n, h}, Bytes: raw16(all.hidden)},
	}
	if len(w.res.Taps) > 0 {
		out = append(out, checkpoint.Data{Name: "taps", DType: checkpoint.BF16, Shape: []int{n, h * len(w.res.Taps)}, Bytes: raw16(all.taps)})
	}
	if w.res.TopK > 0 {
		out = append(out, int32Data("top_ids", []int{n, w.res.TopK}, all.topIDs), checkpoint.Float32Data("top_logits", []int{n, w.res.TopK}, all.topLogits))
	}
	return out
}
