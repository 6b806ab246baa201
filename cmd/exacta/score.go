package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/experiments"
)

func newScoreCommand(o *options) *cobra.Command {
	var f modelFlags
	var idsFlag, idsFile, logitsFile, text string
	var more int
	cmd := &cobra.Command{
		Use: "score", Short: "print log-probabilities, top logits and the greedy continuation of token ids", Args: cobra.NoArgs,
		Long: `score runs token ids through a model in one prefill and prints, for each, its
log-probability and the five largest logits of its row, then the greedy
continuation with the gap between the two largest logits. It is the tool with
which our arithmetic is compared with that of other engines.

--json prints {model, backend, positions: [{id, logprob (null for the first), top:
[{id, logit}]}], continuation: [{id, gap}]}. --logits writes a safetensors file with a
tensor logits, F32 [positions, vocabulary].`,
		Example: `  exacta score --ids 1,2,3 --continue 8
  exacta score --model DIR --ids-file ids.json --logits logits.safetensors --backend ref --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := f.load(cmd, 0)
			if err != nil {
				return err
			}
			defer l.Close()
			ids, err := scoreIDs(l, idsFlag, idsFile, text)
			if err != nil {
				return err
			}
			res, err := experiments.Score(cmd.Context(), l.m, ids, more, logitsFile != "")
			if err != nil {
				return err
			}
			if logitsFile != "" {
				if err := writeLogits(logitsFile, res); err != nil {
					return err
				}
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), res)
			}
			return printScore(cmd, l, res)
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&idsFlag, "ids", "", "token ids, separated by commas")
	cmd.Flags().StringVar(&idsFile, "ids-file", "", "JSON file with an array of token ids")
	cmd.Flags().StringVar(&text, "text", "", "text to tokenise instead of ids")
	cmd.Flags().StringVar(&logitsFile, "logits", "", "write all logits rows to this safetensors file")
	cmd.Flags().IntVar(&more, "continue", 0, "number of tokens to continue greedily")
	cmd.MarkFlagsMutuallyExclusive("ids", "ids-file", "text")
	return cmd
}

func scoreIDs(l *loaded, list, file, text string) ([]int32, error) {
	var ids []int32
	switch {
	case text != "":
		return l.encode(text, true)
	case list != "":
		for _, s := range strings.Split(list, ",") {
			id, err := strconv.ParseInt(strings.TrimSpace(s), 10, 32)
			if err != nil {
				return nil, fmt.Errorf("--ids: %q is not a token id", s)
			}
			ids = append(ids, int32(id))
		}
	case file != "":
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("--ids-file: %w", err)
		}
		var list []*int32
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, fmt.Errorf("--ids-file %s: %w; want an array of integers", file, err)
		}
		for i, id := range list {
			if id == nil {
				return nil, fmt.Errorf("--ids-file %s: null at position %d; want an array of integers", file, i)
			}
			ids = append(ids, *id)
		}
	default:
		return nil, errors.New("score: give --ids, --ids-file or --text")
	}
	if len(ids) == 0 {
		return nil, errors.New("score: no token ids")
	}
	vocab := l.Source.Config().VocabSize
	for i, id := range ids {
		if id < 0 || int(id) >= vocab {
			return nil, fmt.Errorf("score: id %d at position %d is outside the vocabulary 0..%d", id, i, vocab-1)
		}
	}
	return ids, nil
}

func writeLogits(name string, res *experiments.ScoreResult) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("--logits: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	if err := checkpoint.WriteSafetensors(w, []checkpoint.Data{res.LogitsData()}, map[string]string{"model": res.Model, "backend": res.Backend}); err != nil {
		return fmt.Errorf("--logits %s: %w", name, err)
	}
	return w.Flush()
}

func printScore(cmd *cobra.Command, l *loaded, res *experiments.ScoreResult) error {
	w := bufio.NewWriter(cmd.OutOrStdout())
	name := func(id int32) string {
		if l.Tokenizer == nil {
			return ""
		}
		return " " + strconv.Quote(l.Tokenizer.TokenText(id))
	}
	for i, p := range res.Positions {
		lp := "-"
		if p.Logprob != nil {
			lp = strconv.FormatFloat(*p.Logprob, 'f', 4, 64)
		}
		fmt.Fprintf(w, "%5d  id %-7d logprob %9s%s\n       next:", i, p.ID, lp, name(p.ID))
		for _, t := range p.Top {
			fmt.Fprintf(w, "  %d (%.4f)%s", t.ID, t.Logit, name(t.ID))
		}
		fmt.Fprintln(w)
	}
	for i, c := range res.Continuation {
		fmt.Fprintf(w, "+%4d  id %-7d gap %.4f%s\n", i, c.ID, c.Gap, name(c.ID))
	}
	return w.Flush()
}
