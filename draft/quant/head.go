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

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/kernels"
)

// Head collects the tensors of a quantised head.
type Head struct {
	Kind          checkpoint.HeadKind
	Hidden, Vocab int // of the target
	Draft         int // tokens of the LM head
	Options       Options
	Method        string // for the file's metadata
	tensors       []checkpoint.Data
}

// Add quantises a parameter part by part, or copies it where it is not a matrix. A
// method that needs moments gets those of the load. rename gives the name of a part
// in the file.
func (h *Head) Add(l Loaded, rename func(string) string, keep []int32) error {
	for _, p := range l.Parts {
		name := rename(p.Name)
		w, err := values(p)
		if err != nil {
			return err
		}
		rows := p.Rows
		switch {
		case l.Use != kernels.Matrix:
			h.tensors = append(h.tensors, exact(name, p, w))
			continue
		case keep != nil:
			w, rows = pick(w, p.Cols, keep), len(keep)
		}
		var m *Matrix
		if h.Method == "gptq" {
			m, err = GPTQ(name, w, rows, p.Cols, l.Moments, h.Options)
		} else {
			m, err = RoundToNearest(name, w, rows, p.Cols, h.Options)
		}
		if err != nil {
			return err
		}
		h.add(name, m)
	}
	return nil
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

// SetTokens says which tokens the rows of the LM head stand for, in ascending order.
func (h *Head) SetTokens(ids []int32) {
	raw := make([]byte, 0, 8*len(ids))
	for i, id := range ids {
		raw = binary.LittleEndian.AppendUint64(raw, uint64(int64(id)-int64(i)))
	}
	h.Draft = len(ids)
	h.tensors = append(h.tensors, checkpoint.Data{Name: "d2t", DType: checkpoint.I64, Shape: []int{len(ids)}, Bytes: raw})
}

// Bytes returns the size of all tensors.
func (h *Head) Bytes() (n int64) {
	for _, t := range h.tensors {
		n += int64(len(t.Bytes))
	}
	return n
}

// Write writes config.json and model.safetensors into a directory, which is made if
// it is not there.
func (h *Head) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	config, err := json.MarshalIndent(map[string]any{
		"architectures": []string{"MTPDraftModel"}, "model_type": string(h.Kind),
		"hidden_size": h.Hidden, "vocab_size": h.Vocab, "draft_vocab_size": h.Draft,
	}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), append(config, '\n'), 0o644); err != nil {
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
