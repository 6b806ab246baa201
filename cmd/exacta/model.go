package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/registry"
	"exacta.dev/exacta/experiments"
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cuda"
)

// modelFlags say which model runs where.
type modelFlags struct {
	model, backend, kernels string
	threads                 int
	gpuMemory               float64
	pack                    bool
}

// choice is the backend that the flags name.
func (f *modelFlags) choice() experiments.BackendChoice {
	return experiments.BackendChoice{Name: f.backend, Threads: f.threads, Kernels: f.kernels, GPUMemory: f.gpuMemory}
}

// addGPUMemory adds --gpu-memory.
func addGPUMemory(cmd *cobra.Command, share *float64) {
	cmd.Flags().Float64Var(share, "gpu-memory", 0, fmt.Sprintf("share of the GPU's memory that backend cuda may take (default %g)", cuda.DefaultMemoryFraction))
}

// addTrace adds --trace.
func addTrace(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "trace", "", "write a timeline of steps and their operations (Chrome's trace format; backends cuda and fakedev); operations are then launched one by one, and slower")
}

// addLoop adds --loop.
func addLoop(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "loop", "", "decode on the device without the host: auto (where it can be; the default) or off")
	complete(cmd, "loop", experiments.Loops)
}

// packUsage explains --pack-cache.
const packUsage = "keep the weights as the CPU packs them in a file (below EXACTA_CACHE), and map it from the second start on"

func (f *modelFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.pack, "pack-cache", false, packUsage)
	cmd.Flags().StringVar(&f.model, "model", registry.Embedded, registry.Names)
	cmd.Flags().StringVar(&f.backend, "backend", "cpu", fmt.Sprintf("one of %v", experiments.Backends))
	cmd.Flags().StringVar(&f.kernels, "kernels", "", "force a CPU kernel set: avx512bf16, avx512f, avx2, go (default: the best, or EXACTA_KERNELS)")
	cmd.Flags().IntVar(&f.threads, "threads", 0, "CPU threads (default: all cores)")
	addGPUMemory(cmd, &f.gpuMemory)
	completeModel(cmd)
}

// complete offers fixed values for a flag to the shell.
func complete(cmd *cobra.Command, flag string, values []string) {
	// The error is of a flag that does not exist: a mistake in the program
	// that the tests find.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// completeModel offers model names, or directories, and backends.
func completeModel(cmd *cobra.Command) {
	var names []string
	for _, m := range registry.List() {
		names = append(names, m.Name)
	}
	_ = cmd.RegisterFlagCompletionFunc("model", cobra.FixedCompletions(names, cobra.ShellCompDirectiveDefault))
	complete(cmd, "backend", experiments.Backends)
}

// directories completes an argument by directories.
func directories(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// loaded is an opened and loaded model.
type loaded struct {
	*registry.Entry
	backend kernels.Backend
	m       *model.Model
}

func (f *modelFlags) load(cmd *cobra.Command, maxTokens int) (*loaded, error) {
	e, err := registry.Open(f.model)
	if err != nil {
		return nil, err
	}
	for _, note := range e.Notes {
		fmt.Fprintln(cmd.ErrOrStderr(), "note: "+note)
	}
	l := &loaded{Entry: e}
	if l.backend, err = experiments.OpenBackend(f.choice()); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	var p experiments.Packing
	if l.m, p, err = experiments.LoadModel(l.backend, l.Entry, model.Options{MaxTokens: maxTokens, MTP: true}, f.pack); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	if note := p.Note(); note != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), "note: "+note)
	}
	return l, nil
}

// Close releases the backend and the files.
func (l *loaded) Close() error {
	var err error
	if l.backend != nil {
		err = l.backend.Close()
	}
	return errors.Join(err, l.Entry.Close())
}

// encode turns a prompt's text into ids, and says what is wrong with it. With
// special, the tokens that the tokenizer puts around a text are there too.
func (l *loaded) encode(text string, special bool) ([]int32, error) {
	if l.Tokenizer == nil {
		return nil, fmt.Errorf("model %s has no tokenizer; give --ids", l.Name)
	}
	if text == "" {
		return nil, errors.New("the prompt is empty; give some text")
	}
	ids, err := l.Tokenizer.EncodeStrict(text, special)
	if err != nil {
		return nil, fmt.Errorf("prompt: %w", err)
	}
	return ids, nil
}
