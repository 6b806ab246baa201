package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
)

// The files of a checkpoint directory.
const (
	configFile     = "config.json"
	generationFile = "generation_config.json"
	singleFile     = "model.safetensors"
	indexFile      = "model.safetensors.index.json"
)

// weightFile is one opened file of weights; head has no entries where it is a GGUF
// file.
type weightFile struct {
	name  string
	data  []byte
	head  *header
	unmap func() error
	from  *mapping // nil where data is not mapped
}

// Checkpoint is an opened model directory. It is safe for concurrent use until
// it is closed.
type Checkpoint struct {
	name    string
	source  source
	config  Config
	tensors map[string]Tensor
	skipped []string
	files   []weightFile // sorted by name
	last    *mapping     // of the files
	small   map[string][]byte
	closed  bool

	quantization quantization
	cache        weightFile // of expanded weights; without data where there is none
}

// Open opens the checkpoint in directory path: config.json, optionally
// generation_config.json, and either model.safetensors or the files that
// model.safetensors.index.json names; or the GGUF file path (of a model that is cut
// into several files, the first). Weights are memory-mapped; only headers are read.
// Errors name the file, and the key or tensor.
func Open(path string) (*Checkpoint, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("open checkpoint: %w", err)
	case info.IsDir():
		return open(path, dirSource(path))
	case strings.HasSuffix(path, ggufSuffix):
		return openGGUF(path)
	}
	return nil, fmt.Errorf("open checkpoint: %s is a file; give the directory that holds %s, or a file *%s", path, configFile, ggufSuffix)
}

// OpenFS opens the checkpoint whose files lie at the root of fsys, for models
// inside the binary (use fs.Sub for a directory within). name stands for the
// checkpoint in errors. The files are read into memory whole; a file system
// whose ReadFile returns its bytes without copying (fs.ReadFileFS) makes this
// free, and then the bytes must not change.
func OpenFS(fsys fs.FS, name string) (*Checkpoint, error) {
	return open(name, fsSource{fsys})
}

func open(name string, src source) (*Checkpoint, error) {
	ck := &Checkpoint{name: name, source: src, tensors: map[string]Tensor{}, small: map[string][]byte{}}
	if err := ck.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("open checkpoint %s: %w", name, err), ck.Close())
	}
	return ck, nil
}

func (ck *Checkpoint) load() error {
	if err := ck.readConfig(); err != nil {
		return err
	}
	fileOf, err := ck.readIndex()
	if err != nil {
		return err
	}
	if fileOf == nil {
		err = ck.addFile(singleFile)
	} else {
		err = ck.addShards(fileOf)
	}
	if err != nil {
		return err
	}
	if err := ck.scaledWeights(); err != nil {
		return err
	}
	slices.Sort(ck.skipped)
	ck.config.MTPLayers = ck.countMTP()
	return nil
}

func (ck *Checkpoint) readConfig() error {
	text, err := ck.source.read(configFile)
	if err != nil {
		return err
	}
	ck.small[configFile] = text
	if ck.config, err = ParseConfig(text); err != nil {
		return err
	}
	ck.quantization = readQuantization(text)
	gen, err := ck.source.read(generationFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	ck.small[generationFile] = gen
	return ck.config.addGeneration(gen)
}

// readIndex returns the map of the index file, or nil where the checkpoint is
// a single file.
func (ck *Checkpoint) readIndex() (map[string]string, error) {
	single, err := ck.source.exists(singleFile)
	if err != nil || single {
		return nil, err
	}
	text, err := ck.source.read(indexFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("neither %s nor %s is there", singleFile, indexFile)
	}
	if err != nil {
		return nil, err
	}
	ck.small[indexFile] = text
	fileOf, err := parseIndex(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", indexFile, err)
	}
	return fileOf, nil
}

func (ck *Checkpoint) addShards(fileOf map[string]string) error {
	for _, file := range indexFiles(fileOf) {
		if err := ck.addFile(file); err != nil {
			return err
		}
	}
	found := map[string]string{}
	for _, f := range ck.files {
		for _, e := range f.head.entries {
			want, ok := fileOf[e.name]
			switch {
			case !ok:
				return fmt.Errorf("%s holds tensor %q, which %s does not list", f.name, e.name, indexFile)
			case want != f.name:
				return fmt.Errorf("%s holds tensor %q, which %s places in %s", f.name, e.name, indexFile, want)
			}
			found[e.name] = f.name
		}
	}
	for _, name := range slices.Sorted(maps.Keys(fileOf)) {
		if _, ok := found[name]; !ok {
			return fmt.Errorf("%s lacks tensor %q, which %s places there", fileOf[name], name, indexFile)
		}
	}
	return nil
}

// addFile opens one safetensors file and adds its tensors.
func (ck *Checkpoint) addFile(name string) error {
	data, mapped, unmap, err := ck.source.weights(name)
	if err != nil {
		return err
	}
	ck.files = append(ck.files, weightFile{name: name, data: data, unmap: unmap})
	f := &ck.files[len(ck.files)-1]
	if mapped {
		f.from = ck.mapped(data)
	}
	if f.head, err = parseHeader(data, int64(len(data))); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	start := f.head.size
	for _, e := range f.head.entries {
		normal, used := NormalName(e.name)
		if !used {
			ck.skipped = append(ck.skipped, e.name)
			continue
		}
		if old, ok := ck.tensors[normal]; ok {
			return fmt.Errorf("tensors %q in %s and %q in %s are the same tensor %q", old.Source, old.File, e.name, name, normal)
		}
		ck.tensors[normal] = Tensor{
			Name: normal, Source: e.name, File: name, DType: e.dtype, Shape: e.shape,
			data: data[start+e.begin : start+e.end : start+e.end], file: f.from,
		}
	}
	return nil
}

// countMTP counts the MTP layers whose tensors are there: a config may promise
// a head that its files lack, or have one that it does not mention.
func (ck *Checkpoint) countMTP() int {
	n := 0
	for name := range ck.tensors {
		rest, ok := strings.CutPrefix(name, "mtp.layers.")
		if !ok {
			continue
		}
		num, _, _ := strings.Cut(rest, ".")
		if i, err := strconv.Atoi(num); err == nil && i >= 0 && i < maxLayers {
			n = max(n, i+1)
		}
	}
	for n < maxLayers && ck.Has(fmt.Sprintf("mtp.%d.e_proj.weight", n)) { // DeepSeek-V4
		n++
	}
	// DeepSeek before it and GLM keep them behind the layers of the trunk.
	for n < maxLayers && ck.Has(fmt.Sprintf("model.layers.%d.eh_proj.weight", ck.config.NumLayers+n)) {
		n++
	}
	return n
}

// Name is the directory, the GGUF file, or the name given to OpenFS.
func (ck *Checkpoint) Name() string { return ck.name }

// Config returns the checked configuration. EOS ids include those of
// generation_config.json; MTPLayers is what the tensors hold.
func (ck *Checkpoint) Config() Config { return ck.config }

// Tensor returns the tensor of that normalised name. The error names the
// checkpoint and the tensor.
func (ck *Checkpoint) Tensor(name string) (Tensor, error) {
	if ck.closed {
		return Tensor{}, fmt.Errorf("checkpoint %s is closed", ck.name)
	}
	t, ok := ck.tensors[name]
	if !ok {
		return Tensor{}, fmt.Errorf("checkpoint %s has no tensor %q (it has %d tensors)", ck.name, name, len(ck.tensors))
	}
	return t, nil
}

// Has reports whether there is a tensor of that normalised name.
func (ck *Checkpoint) Has(name string) bool {
	_, ok := ck.tensors[name]
	return ok
}

// Names returns the normalised names of all tensors, sorted.
func (ck *Checkpoint) Names() []string { return slices.Sorted(maps.Keys(ck.tensors)) }

// Skipped returns the names (as the files spell them) of the tensors that the
// engine leaves out, sorted.
func (ck *Checkpoint) Skipped() []string { return slices.Clone(ck.skipped) }

// Metadata returns the free-text metadata of the weight files, merged in the
// order of their names.
func (ck *Checkpoint) Metadata() map[string]string {
	all := map[string]string{}
	for _, f := range ck.files {
		maps.Copy(all, f.head.metadata)
	}
	return all
}

// ReadFile returns another file of the checkpoint by its base name, such as
// tokenizer.json. A file that is not there gives an error that satisfies
// errors.Is(err, fs.ErrNotExist).
func (ck *Checkpoint) ReadFile(name string) ([]byte, error) {
	text, err := ck.source.read(name)
	if err != nil {
		return nil, fmt.Errorf("checkpoint %s: %w", ck.name, err)
	}
	return text, nil
}

// Close unmaps the weights. Tensor bytes must not be touched afterwards.
// Closing twice is harmless.
func (ck *Checkpoint) Close() error {
	if ck.closed {
		return nil
	}
	ck.closed = true
	var errs []error
	for _, f := range ck.files {
		errs = append(errs, f.unmap())
	}
	if ck.cache.unmap != nil {
		errs = append(errs, ck.cache.unmap())
	}
	return errors.Join(errs...)
}
