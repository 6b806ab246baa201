package acceptance

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// UnknownClass is the class of a prompt that a run's prompts.jsonl does not have.
const UnknownClass = "unknown"

// Prompts are the prompts of a run by id.
type Prompts map[string]Prompt

// Prompt is what statistics need to know of a prompt.
type Prompt struct {
	Class string
	Hash  [sha256.Size]byte // of its token ids
}

// ReadPrompts reads prompts.jsonl of a run directory. A directory without it
// gives an error that is fs.ErrNotExist.
func ReadPrompts(dir string) (Prompts, error) {
	out := Prompts{}
	err := readLines(filepath.Join(dir, "prompts.jsonl"), func(p *struct {
		ID    string  `json:"id"`
		Class string  `json:"class"`
		IDs   []int32 `json:"prompt_ids"`
	}) error {
		if _, ok := out[p.ID]; ok {
			return fmt.Errorf("prompt %q is there twice", p.ID)
		}
		raw := make([]byte, 0, 4*len(p.IDs))
		for _, id := range p.IDs {
			raw = binary.LittleEndian.AppendUint32(raw, uint32(id))
		}
		out[p.ID] = Prompt{p.Class, sha256.Sum256(raw)}
		return nil
	})
	return out, err
}

// ReadFinished reads from outputs.jsonl of a run directory which requests came
// to their end: a run that was cut short has records of others too.
func ReadFinished(dir string) (map[string]bool, error) {
	out := map[string]bool{}
	err := readLines(filepath.Join(dir, "outputs.jsonl"), func(o *struct {
		Request string `json:"request"`
	}) error {
		out[o.Request] = true
		return nil
	})
	return out, err
}

// readLines streams a JSONL file; each gets a value that is not kept. A line that
// a killed process left unfinished, without its end, is passed over.
func readLines[T any](name string, each func(*T) error) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewReader(f)
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		var v T
		if err = json.Unmarshal(line, &v); err == nil {
			err = each(&v)
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", name, n, err)
		}
	}
}
