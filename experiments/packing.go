package experiments

import (
	"fmt"
	"strings"

	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/registry"
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cpu"
)

// Packing says what became of weights that were to be kept as the CPU packs them.
type Packing struct {
	// Written says that this load left the file; Mapped that it used the one of an
	// earlier load.
	Written, Mapped bool
	// Err is why the file could not be written; the weights are loaded all the same.
	Err error
}

// Note is what a user should see of it, or empty.
func (p Packing) Note() string {
	switch {
	case p.Err != nil:
		return strings.ReplaceAll(p.Err.Error(), "\n", "; ")
	case p.Written:
		return "packed weights are kept for the next start"
	}
	return ""
}

// String is Packing in a word, for provenance; empty where nothing was to be kept.
func (p Packing) String() string {
	switch {
	case p.Err != nil:
		return "not kept"
	case p.Written:
		return "written"
	case p.Mapped:
		return "mapped"
	}
	return ""
}

// LoadModel loads an opened model. With pack, its weights are kept as the CPU backend
// packs them, in a file below registry.CacheDir that the next load maps and processes
// share; another backend, or a model without files, is an error then.
func LoadModel(be kernels.Backend, e *registry.Entry, o model.Options, pack bool) (m *model.Model, p Packing, err error) {
	if !pack {
		m, err = model.Load(be, e.Source, o)
		return m, p, err
	}
	c, ok := be.(*cpu.Backend)
	if !ok {
		return nil, p, fmt.Errorf("packed weights are kept by the backend cpu, not %s", be.Info().Name)
	}
	path, key, err := e.PackedFile()
	if err == nil {
		err = c.UsePacked(path, key)
	}
	if err != nil {
		return nil, p, fmt.Errorf("packed weights: %w", err)
	}
	if m, err = model.Load(be, e.Source, o); err != nil {
		return nil, p, err
	}
	p.Written, p.Err = c.FinishPacked()
	p.Mapped = !p.Written && p.Err == nil
	return m, p, nil
}
