package quant

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/kernels"
)

// Head collects the tensors of a quantised head.
type Head struct {
	// Config is what the head was made from says of itself; its Text, with the
	// number of tokens of the LM head, becomes the new one's config.json.
	Config  checkpoint.HeadConfig
	Options Options
	Method  string // gptq, or rtn for round to nearest
	tensors []checkpoint.Data
	draft   int // tokens of the LM head; 0: as in Config
}

// Add quantises a part of a parameter that was loaded, under the name that it has in
// the head's file, or copies it where it is not a matrix. keep lists the rows to keep;
// nil keeps all. A method that needs moments gets those of the load.
func (h *Head) Add(l Loaded, part kernels.Source, name string, keep []int32) error {
	w, err := values(part)
	if err != nil {
		return err
	}
	if l.Use != kernels.Matrix || part.Rows == 1 || model.Gathered(name) {
		h.tensors = append(h.tensors, exact(name, part, w))
		return nil
	}
	rows := part.Rows
	if keep != nil {
		w, rows = pick(w, part.Cols, keep), len(keep)
	}
	var m *Matrix
	if h.Method == "gptq" {
		m, err = GPTQ(name, w, rows, part.Cols, l.Moments, h.Options)
	} else {
		m, err = RoundToNearest(name, w, rows, part.Cols, h.Options)
	}
	if err == nil {
		h.add(name, m)
	}
	return err
}

// IsLMHead reports whether a tensor of a head is an LM head.
func IsLMHead(name string) bool {
	return name == "lm_head.weight" || strings.HasPrefix(name, "lm_heads.")
}

// ByToken reports whether a tensor of a head has a row for each token that its LM head
// knows: the LM head, and what is added to its logits.
func ByToken(name string) bool {
	return IsLMHead(name) || name == "markov_head.markov_w2.weight"
}

func (h *Head) add(name string, m *Matrix) {
	groups := m.Cols / m.Group
	h.tensors = append(h.tensors,
		checkpoint.Data{Name: name, DType: checkpoint.U8, Shape: []int{m.Rows, m.Cols / 2}, Bytes: m.Nibbles},
		checkpoint.Uint16Data(name+model.ScaleSuffix, checkpoint.BF16, []int{m.Rows, groups}, m.Scales))
	if m.Zeros != nil {
		h.tensors = append(h.tensors, checkpoint.Data{Name: name + model.ZeroSuffix, DType: checkpoint.U8, Shape: []int{m.Rows, groups}, Bytes: m.Zeros})
	}
}

// SetTokens says which tokens the rows of the LM head stand for.
func (h *Head) SetTokens(ids []int32) {
	h.draft = len(ids)
	name, offsets := "d2t", true
	if h.Config.Kind == checkpoint.HeadMedusa {
		name, offsets = "token_map", false
	}
	raw := make([]byte, 0, 8*len(ids))
	for i, id := range ids {
		v := int64(id)
		if offsets {
			v -= int64(i)
		}
		raw = binary.LittleEndian.AppendUint64(raw, uint64(v))
	}
	h.tensors = append(h.tensors, checkpoint.Data{Name: name, DType: checkpoint.I64, Shape: []int{len(ids)}, Bytes: raw})
}

// config is the new head's config.json.
func (h *Head) config() ([]byte, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(h.Config.Text, &all); err != nil {
		return nil, fmt.Errorf("config of the head: %w", err)
	}
	if h.draft > 0 {
		key := "draft_vocab_size"
		if h.Config.Kind == checkpoint.HeadMedusa {
			key = "truncated_vocab_size"
		}
		all[key] = json.RawMessage(strconv.Itoa(h.draft))
	}
	text, err := json.MarshalIndent(all, "", "  ")
	return append(text, '\n'), err
}

// Bytes returns the size of what a draft reads: of all but what rows are gathered from,
// the table of tokens among it.
func (h *Head) Bytes() (n int64) {
	for _, t := range h.tensors {
		if !model.Gathered(t.Name) && t.DType != checkpoint.I64 {
			n += int64(len(t.Bytes))
		}
	}
	return n
}

// Write writes config.json and model.safetensors into a directory, which is made if
// it is not there.
func (h *Head) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	config, err := h.config()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), config, 0o644); err != nil {
		return err
	}
	name := filepath.Join(dir, "model.safetensors")
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	err = checkpoint.WriteSafetensors(w, h.tensors, map[string]string{
		"int4": fmt.Sprintf("method %s, group %d, zero points %t", h.Method, h.Options.Group, h.Options.ZeroPoints),
	})
	if err := errors.Join(err, w.Flush(), f.Close()); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// values reads a part as float32.
func values(p kernels.Source) ([]float32, error) {
	size := p.DType.Size()
	if size == 0 {
		return nil, fmt.Errorf("%s has 4 bits already; quantise the head that it was made from", p.Name)
	}
	raw := make([]byte, p.Rows*p.Cols*size)
	if n, err := p.Data.ReadAt(raw, 0); n < len(raw) {
		return nil, fmt.Errorf("read %s: %w", p.Name, errors.Join(err, io.ErrUnexpectedEOF))
	}
	t := checkpoint.DType(p.DType.String())
	w, err := checkpoint.Float32s(t, raw)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", p.Name, err)
	}
	return w, nil
}

// exact is a vector or table as it was: BF16 if that holds it, else F32.
func exact(name string, p kernels.Source, w []float32) checkpoint.Data {
	shape := []int{p.Rows, p.Cols}
	if p.Rows == 1 {
		shape = shape[1:]
	}
	bits := make([]uint16, len(w))
	for i, v := range w {
		b := math.Float32bits(v)
		if b&0xffff != 0 {
			return checkpoint.Float32Data(name, shape, w)
		}
		bits[i] = uint16(b >> 16)
	}
	return checkpoint.Uint16Data(name, checkpoint.BF16, shape, bits)
}

// pick copies rows.
func pick(w []float32, cols int, rows []int32) []float32 {
	out := make([]float32, 0, len(rows)*cols)
	for _, r := range rows {
		out = append(out, w[int(r)*cols:][:cols]...)
	}
	return out
}
