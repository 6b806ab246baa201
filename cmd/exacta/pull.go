package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"exacta.dev/exacta/engine/checkpoint/hub"
)

func newPullCommand(o *options) *cobra.Command {
	var include []string
	cmd := &cobra.Command{
		Use: "pull ORG/NAME", Short: "fetch a model into the Hugging Face cache", Args: cobra.ExactArgs(1),
		Long: `pull fetches a model from the Hugging Face Hub into the cache that the Hugging Face
libraries share, where --model ORG/NAME finds it, and prints where it is. ORG/NAME@REV
is another revision than main, ORG/NAME/FILE.gguf one GGUF file. What is there already
is not fetched again, what was begun is resumed, and every file is checked by its hash.

The environment says where and how, as for those libraries: HF_HOME or HF_HUB_CACHE (the
cache), HF_ENDPOINT (another server), HF_TOKEN (for models that ask for one; it is shown
to that server alone), HF_HUB_OFFLINE.

--json prints {model, path, bytes, received}: the bytes of all its files, and those that
came over the network.`,
		Example: "  exacta pull HuggingFaceTB/SmolLM2-135M-Instruct\n  exacta pull Qwen/Qwen3-0.6B-GGUF/Qwen3-0.6B-Q8_0.gguf\n  exacta pull org/model@v2 --include '*.json' --include '*.safetensors'",
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := hub.ParseID(args[0])
			if err != nil {
				return err
			}
			bar := &pullBar{progress: newProgress(cmd.ErrOrStderr()), start: time.Now()}
			path, err := hub.Pull(cmd.Context(), id, hub.Options{Include: include, Progress: bar.show})
			bar.clear()
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), map[string]any{"model": id.String(), "path": path, "bytes": bar.last.Total, "received": bar.last.Received})
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), path)
			return err
		},
	}
	cmd.Flags().StringArrayVar(&include, "include", nil, "pattern of the files to fetch (default: *.json, *.safetensors, *.jinja, merges.txt, vocab.txt)")
	return cmd
}

// pullBar shows how far a pull is.
type pullBar struct {
	progress
	start, shown time.Time
	last         hub.Progress
}

func (b *pullBar) show(p hub.Progress) {
	b.last = p
	now := time.Now()
	if now.Sub(b.shown) < 100*time.Millisecond {
		return
	}
	b.shown = now
	const width = 30
	full := 0
	if p.Total > 0 {
		full = int(width * p.Done / p.Total)
	}
	b.progress.show(fmt.Sprintf("[%s%s] %s of %s, %s/s  %s", strings.Repeat("#", full), strings.Repeat(".", width-full),
		size(p.Done), size(p.Total), size(int64(float64(p.Received)/max(now.Sub(b.start).Seconds(), 0.1))), p.File))
}
