package checkpoint

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"exacta.dev/exacta/engine/checkpoint/gguf"
)

// ggufSuffix ends the names of GGUF files.
const ggufSuffix = ".gguf"

// ggufArch says what a general.architecture means here: the model that it is, and
// its tensors. In names, N stands for the number of a layer.
type ggufArch struct {
	modelType, architecture string
	// permuted says that the rows of each head of q and k are interleaved: the
	// rotation of llama.cpp pairs neighbours, ours the halves of a head.
	permuted bool
	tensors  map[string]string
}

// denseTensors are the names that all dense decoders share.
var denseTensors = map[string]string{
	"token_embd.weight":        "model.embed_tokens.weight",
	"output_norm.weight":       "model.norm.weight",
	"output.weight":            "lm_head.weight",
	"blk.N.attn_norm.weight":   "model.layers.N.input_layernorm.weight",
	"blk.N.attn_q.weight":      "model.layers.N.self_attn.q_proj.weight",
	"blk.N.attn_k.weight":      "model.layers.N.self_attn.k_proj.weight",
	"blk.N.attn_v.weight":      "model.layers.N.self_attn.v_proj.weight",
	"blk.N.attn_output.weight": "model.layers.N.self_attn.o_proj.weight",
	"blk.N.ffn_norm.weight":    "model.layers.N.post_attention_layernorm.weight",
	"blk.N.ffn_gate.weight":    "model.layers.N.mlp.gate_proj.weight",
	"blk.N.ffn_up.weight":      "model.layers.N.mlp.up_proj.weight",
	"blk.N.ffn_down.weight":    "model.layers.N.mlp.down_proj.weight",
	ropeFreqs:                  "", // read for the configuration
}

var ggufArchs = map[string]ggufArch{
	"llama":    {"llama", "LlamaForCausalLM", true, denseTensors},
	"qwen3":    {"qwen3", "Qwen3ForCausalLM", false, merged(denseTensors, headNorms)},
	"qwen3moe": {"qwen3_moe", "Qwen3MoeForCausalLM", false, merged(denseTensors, headNorms, moeTensors)},
}

// headNorms are the norms of each head of q and k.
var headNorms = map[string]string{
	"blk.N.attn_q_norm.weight": "model.layers.N.self_attn.q_norm.weight",
	"blk.N.attn_k_norm.weight": "model.layers.N.self_attn.k_norm.weight",
}

func merged(list ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range list {
		maps.Copy(out, m)
	}
	return out
}

// ggufSource stands for the directory that a GGUF file would be: its texts are made
// of the file's metadata.
type ggufSource struct {
	head   *gguf.File
	config []byte
}

var _ source = ggufSource{}

func (s ggufSource) exists(name string) (bool, error) {
	return slices.Contains([]string{configFile, "tokenizer.json", "tokenizer_config.json"}, name), nil
}

func (s ggufSource) read(name string) ([]byte, error) {
	switch name {
	case configFile:
		return s.config, nil
	case "tokenizer.json":
		return ggufTokenizer(s.head)
	case "tokenizer_config.json":
		return ggufTokenizerConfig(s.head)
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

func (s ggufSource) weights(name string) ([]byte, bool, func() error, error) {
	return nil, false, nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// openGGUF opens a GGUF file, or the first of several.
func openGGUF(path string) (*Checkpoint, error) {
	ck := &Checkpoint{name: path, tensors: map[string]Tensor{}, small: map[string][]byte{}}
	if err := ck.loadGGUF(path); err != nil {
		return nil, errors.Join(fmt.Errorf("open checkpoint %s: %w", path, err), ck.Close())
	}
	return ck, nil
}

func (ck *Checkpoint) loadGGUF(path string) error {
	first, err := ck.mapGGUF(path)
	if err != nil {
		return err
	}
	parts, err := ck.mapSplits(path, first)
	if err != nil {
		return err
	}
	name, _ := first.Values["general.architecture"].Text()
	arch, ok := ggufArchs[name]
	if !ok {
		return fmt.Errorf("general.architecture is %q; known are %s", name, strings.Join(sortedKeys(ggufArchs), ", "))
	}
	tensors := map[string]gguf.Tensor{}
	for _, f := range parts {
		for _, t := range f.Tensors {
			if _, ok := tensors[t.Name]; ok {
				return fmt.Errorf("tensor %q is in two of the files", t.Name)
			}
			tensors[t.Name] = t
		}
	}
	text, keys, err := ggufConfig(first, name, arch, tensors)
	if err != nil {
		return err
	}
	ck.source = ggufSource{first, text}
	if err := ck.readConfig(); err != nil {
		return ggufConfigError(err, filepath.Base(path), keys)
	}
	for i, f := range parts {
		for _, t := range f.Tensors {
			if err := ck.addGGUF(t, arch, ck.files[i]); err != nil {
				return fmt.Errorf("%s: tensor %q: %w", ck.files[i].name, t.Name, err)
			}
		}
	}
	return nil
}

// mapGGUF maps and parses one file.
func (ck *Checkpoint) mapGGUF(path string) (*gguf.File, error) {
	data, unmap, err := mapFile(path)
	if err != nil {
		return nil, err
	}
	f := weightFile{name: filepath.Base(path), data: data, head: &header{}, unmap: unmap, from: ck.mapped(data)}
	ck.files = append(ck.files, f)
	head, err := gguf.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.name, err)
	}
	f.head.size, f.head.sum = int64(len(head.Header)), sha256.Sum256(head.Header)
	f.head.metadata = map[string]string{}
	for _, key := range head.Keys {
		if text, ok := head.Values[key].Text(); ok && strings.HasPrefix(key, "general.") {
			f.head.metadata[key] = text
		}
	}
	return head, nil
}

var splitName = regexp.MustCompile(`^(.*)-00001-of-(\d{5})\.gguf$`)

// mapSplits maps the other files of a model that is cut into several, and returns
// all.
func (ck *Checkpoint) mapSplits(path string, first *gguf.File) ([]*gguf.File, error) {
	parts := []*gguf.File{first}
	count := int64(1)
	if v, ok := first.Values["split.count"]; ok {
		if count, ok = v.Integer(); !ok || count < 0 || count > 99999 {
			return nil, errors.New("split.count is not a number of files")
		}
	}
	if count <= 1 {
		return parts, nil
	}
	dir, base := filepath.Split(path)
	m := splitName.FindStringSubmatch(base)
	if m == nil || m[2] != fmt.Sprintf("%05d", count) {
		return nil, fmt.Errorf("it is one of %d files of a model; give the first, named ...-00001-of-%05d.gguf", count, count)
	}
	for i := int64(2); i <= count; i++ {
		f, err := ck.mapGGUF(filepath.Join(dir, fmt.Sprintf("%s-%05d-of-%05d.gguf", m[1], i, count)))
		if err != nil {
			return nil, err
		}
		if no, ok := f.Values["split.no"].Integer(); !ok || no != i-1 {
			return nil, fmt.Errorf("%s: split.no must be %d", ck.files[i-1].name, i-1)
		}
		parts = append(parts, f)
	}
	return parts, nil
}

var layerNumber = regexp.MustCompile(`^blk\.(\d{1,4})\.`)

// addGGUF adds one tensor under the name that the engine has for it.
func (ck *Checkpoint) addGGUF(t gguf.Tensor, arch ggufArch, f weightFile) error {
	pattern, layer := t.Name, ""
	if m := layerNumber.FindStringSubmatch(t.Name); m != nil {
		layer = m[1]
		pattern = "blk.N." + t.Name[len(m[0]):]
	}
	name, known := arch.tensors[pattern]
	switch {
	case !known:
		return fmt.Errorf("a model of type %s has no such tensor", arch.modelType)
	case name == "":
		ck.skipped = append(ck.skipped, t.Name)
		return nil
	case !t.Type.Supported():
		return fmt.Errorf("%s is not supported; supported are %s", t.Type, gguf.SupportedTypes())
	}
	name = strings.Replace(name, ".N.", "."+layer+".", 1)
	out := Tensor{Name: name, Source: t.Name, File: f.name, Stored: t.Type.String(), Shape: t.Shape, data: t.Data, file: f.from}
	rows := ggufRows{kind: t.Type, cols: t.Shape[len(t.Shape)-1], data: t.Data}
	if arch.permuted {
		if err := rows.interleave(pattern, ck.config, t.Shape); err != nil {
			return err
		}
	}
	switch t.Type {
	case gguf.F32:
		out.DType = F32
	case gguf.F16:
		out.DType = F16
	default:
		out.DType = BF16
	}
	if strings.Contains(name, ".E.") {
		return ck.addExperts(out, rows)
	}
	if rows.head > 0 || t.Type.Block() > 1 {
		out.rows = rows
	}
	ck.tensors[name] = out
	return nil
}

// ggufRows reads the rows of a tensor of a GGUF file: those of quantised types as
// BF16.
type ggufRows struct {
	kind gguf.Type
	cols int
	data []byte
	head int // rows of a head whose halves are interleaved; 0: rows as they lie
}

// interleave notes that a tensor is one of those whose rows are interleaved.
func (g *ggufRows) interleave(pattern string, c Config, shape []int) error {
	switch pattern {
	case "blk.N.attn_q.weight", "blk.N.attn_k.weight":
	default:
		return nil
	}
	if shape[0]%c.HeadDim != 0 || c.HeadDim%2 != 0 {
		return fmt.Errorf("%s rows are no whole number of heads of %d", strconv.Itoa(shape[0]), c.HeadDim)
	}
	g.head = c.HeadDim
	return nil
}

// readRows implements rowReader.
func (g ggufRows) readRows(dst []byte, first, n int) error {
	stored, line := g.kind.Size(g.cols), len(dst)/n
	wide := make([]float32, g.kind.Block())
	for i := range n {
		r := g.place(first + i)
		src, out := g.data[r*stored:(r+1)*stored], dst[i*line:(i+1)*line]
		if g.kind.Block() == 1 {
			copy(out, src)
			continue
		}
		for size := g.kind.Size(len(wide)); len(src) > 0; src = src[size:] {
			g.kind.Expand(wide, src[:size])
			putBF16(out, wide)
			out = out[2*len(wide):]
		}
	}
	return nil
}

// place is where row r lies. The converter reshapes a head's rows from [2][d/2] to
// [d/2][2].
func (g ggufRows) place(r int) int {
	if g.head == 0 {
		return r
	}
	at, half := r%g.head, g.head/2
	return r - at + at%half*2 + at/half
}
