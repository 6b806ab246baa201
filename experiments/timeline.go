package experiments

import (
	"bufio"
	"errors"
	"fmt"
	"os"

	"exacta.dev/exacta/engine"
)

// WriteTimeline writes a timeline to a file in Chrome's trace format.
func WriteTimeline(path string, t *engine.Timeline) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	if err := t.Write(w); err != nil {
		return errors.Join(fmt.Errorf("trace %s: %w", path, err), w.Flush())
	}
	return w.Flush()
}
