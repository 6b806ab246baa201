package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// headsDir is the folder of a model directory that holds heads made for the
// model, a directory each, by the name of the strategy that uses it.
const headsDir = "heads"

// Head is an opened directory of a draft head: config.json, and
// model.safetensors or medusa_lm_head.safetensors. Tensors go by the names of
// the reference code, whatever layout the file has: fc, midlayer, norm, lm_head,
// d2t for EAGLE-3 (files may say layers.0 for midlayer), blocks.N.layers.M,
// lm_heads.N, token_map for Medusa (files may say N.M.linear and N.M), fc,
// hidden_norm, layers.N, norm and, over a vocabulary of its own, lm_head, d2t for DFlash,
// markov_head and confidence_head.proj with these for
// DSpark, fc and layers.0 for EAGLE (files may say fusion_fc and transformer), and mtp.*, lm_head, d2t for an MTP module. Any matrix but an embedding may have 4 bits
// (see package draft/quant): X of U8 [rows, columns/2] goes with X_scale and, where the
// weights aren't symmetric, X_zero. It is safe for concurrent use until it is closed.
type Head struct {
	ck     *Checkpoint
	config HeadConfig
	names  map[string]string // of tensors: canonical to the file's
}

// OpenHead opens the head in a directory. Errors name the file, and the key or
// tensor.
func OpenHead(dir string) (*Head, error) { return openHead(dir, dirSource(dir)) }

// OpenHead opens the head that lies in the checkpoint's folder heads/NAME. Where
// there is none the error satisfies errors.Is(err, fs.ErrNotExist).
func (ck *Checkpoint) OpenHead(name string) (*Head, error) {
	if !fs.ValidPath(name) || strings.Contains(name, "/") {
		return nil, fmt.Errorf("checkpoint %s: %q is not the name of a head", ck.name, name)
	}
	at := path.Join(headsDir, name)
	there, err := ck.source.exists(at)
	if err == nil && !there {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, fmt.Errorf("checkpoint %s: %s: %w", ck.name, at, err)
	}
	if dir, ok := ck.source.(dirSource); ok {
		return OpenHead(filepath.Join(string(dir), at))
	}
	sub, err := fs.Sub(ck.source.(fsSource).fsys, at)
	if err != nil {
		return nil, fmt.Errorf("checkpoint %s: %s: %w", ck.name, at, err)
	}
	return openHead(ck.name+"/"+at, fsSource{sub})
}

// HasHead reports whether the checkpoint's folder heads has a head of that name.
func (ck *Checkpoint) HasHead(name string) bool {
	there, err := ck.source.exists(path.Join(headsDir, name))
	return there && err == nil
}

func openHead(name string, src source) (*Head, error) {
	h := &Head{ck: &Checkpoint{name: name, source: src, tensors: map[string]Tensor{}, small: map[string][]byte{}}, names: map[string]string{}}
	if err := h.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("open head %s: %w", name, err), h.Close())
	}
	return h, nil
}

func (h *Head) load() error {
	text, err := h.ck.source.read(configFile)
	if err != nil {
		return err
	}
	if h.config, err = ParseHeadConfig(text); err != nil {
		return err
	}
	file := singleFile
	for _, f := range []string{singleFile, "medusa_lm_head.safetensors"} {
		there, err := h.ck.source.exists(f)
		if err != nil {
			return err
		}
		if there {
			file = f
			break
		}
	}
	if err := h.ck.addFile(file); err != nil {
		return fmt.Errorf("%w; a head's weights must be in safetensors format", err)
	}
	for name := range h.ck.tensors {
		own := h.canonical(name)
		if old, taken := h.names[own]; taken {
			return fmt.Errorf("tensors %q and %q are the same tensor %q", old, name, own)
		}
		h.names[own] = name
	}
	return nil
}

var (
	medusaLayer = regexp.MustCompile(`^(?:medusa_head\.)?(\d+)\.(\d+)\.linear\.(weight|bias)$`)
	medusaHead  = regexp.MustCompile(`^(?:medusa_head\.)?(\d+)\.\d+\.weight$`)
)

// canonical gives the name under which a head's tensor is asked for.
func (h *Head) canonical(name string) string {
	name = strings.TrimPrefix(name, "model.")
	switch h.config.Kind {
	case HeadEagle:
		if rest, ok := strings.CutPrefix(name, "fusion_fc."); ok {
			return "fc." + rest
		}
		if rest, ok := strings.CutPrefix(name, "transformer."); ok {
			return "layers.0." + rest
		}
	case HeadEagle3:
		if rest, ok := strings.CutPrefix(name, "layers.0."); ok {
			return "midlayer." + rest
		}
	case HeadMedusa:
		name = medusaLayer.ReplaceAllString(name, "blocks.$1.layers.$2.$3")
		return medusaHead.ReplaceAllString(name, "lm_heads.$1.weight")
	}
	return name
}

// Name is the directory, or what stands for it.
func (h *Head) Name() string { return h.ck.name }

// Config returns the checked configuration.
func (h *Head) Config() HeadConfig { return h.config }

// Has reports whether there is a tensor of that name.
func (h *Head) Has(name string) bool { return h.names[name] != "" }

// Tensor returns the tensor of that name. The error names the head and the
// tensor.
func (h *Head) Tensor(name string) (Tensor, error) {
	at, ok := h.names[name]
	if !ok {
		return Tensor{}, fmt.Errorf("head %s (%s) has no tensor %q (it has %d tensors)", h.Name(), h.config.Kind, name, len(h.names))
	}
	return h.ck.Tensor(at)
}

// Ints returns the n elements of an integer tensor (I64 or I32).
func (h *Head) Ints(name string, n int) ([]int64, error) {
	t, err := h.Tensor(name)
	if err != nil {
		return nil, err
	}
	ids, err := t.Ints(n)
	if err != nil {
		return nil, fmt.Errorf("head %s: tensor %q %w", h.Name(), name, err)
	}
	return ids, nil
}

// Close unmaps the weights. Closing twice is harmless.
func (h *Head) Close() error { return h.ck.Close() }
