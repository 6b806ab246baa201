package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/tokenizer"
)

// painter writes tokens as text, coloured by their kind.
type painter struct {
	w      io.Writer
	dec    *tokenizer.Decoder
	colour bool
}

var colours = map[string]string{"accepted": "\x1b[32m", string(engine.NextCorrection): "\x1b[31m", string(engine.NextBonus): "\x1b[36m"}

func (p *painter) record(r *engine.Record) {
	for i, id := range r.EmittedIDs {
		p.write(p.dec.Push(id), kindOf(r, i))
	}
}

func (p *painter) write(text, kind string) {
	if c := colours[kind]; p.colour && c != "" && text != "" {
		// A colour must not run over a line's end.
		text = c + strings.ReplaceAll(text, "\n", "\x1b[0m\n"+c) + "\x1b[0m"
	}
	fmt.Fprint(p.w, text)
}

func (p *painter) flush() { fmt.Fprintln(p.w, p.dec.Flush()) }

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
