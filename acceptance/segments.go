package acceptance

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/parquet-go/parquet-go"
)

// segmentName returns the name of segment n, from 1.
func segmentName(n int) string { return fmt.Sprintf("records-%06d.parquet", n) }

// part is a segment and the number of its rows.
type part struct{ number, rows int }

// mergeSmall makes the segments that were closed by the clock into as few as their
// rows allow. A merged segment has the name of its first part and says which was its
// last (keyThrough); then the other parts are removed, and where a process is killed
// before that, readers pass them over. Where merging fails, for want of room say, the
// parts stay as they are.
func (w *Writer) mergeSmall() {
	if w.merge == 0 {
		return
	}
	for len(w.small) > 0 {
		n, rows := 1, w.small[0].rows
		for n < len(w.small) && rows+w.small[n].rows <= w.limit {
			rows += w.small[n].rows
			n++
		}
		if n > 1 {
			_ = w.mergeParts(w.small[:n], rows)
		}
		w.small = w.small[n:]
	}
}

// mergeParts makes consecutive segments into one.
func (w *Writer) mergeParts(parts []part, n int) error {
	rows := make([]row, 0, n)
	for _, p := range parts {
		err := readRows(filepath.Join(w.dir, segmentName(p.number)), func(r *row) error {
			rows = append(rows, *r)
			return nil
		})
		if err != nil {
			return err
		}
	}
	last := parts[len(parts)-1].number
	content, err := encode(w.meta, rows, parquet.KeyValueMetadata(keyThrough, strconv.Itoa(last)))
	if err != nil {
		return err
	}
	if err := w.store(filepath.Join(w.dir, segmentName(parts[0].number)), content); err != nil {
		return err
	}
	for _, p := range parts[1:] {
		if err := os.Remove(filepath.Join(w.dir, segmentName(p.number))); err != nil {
			return err
		}
	}
	return nil
}

// segments lists the numbers of the segments in a directory, rising. Unfinished
// files (.tmp) and other files are passed over.
func segments(dir string) ([]int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("records: %w", err)
	}
	var numbers []int
	for _, e := range entries {
		middle, ok := strings.CutPrefix(e.Name(), "records-")
		if !ok {
			continue
		}
		if middle, ok = strings.CutSuffix(middle, ".parquet"); !ok {
			continue
		}
		n, err := strconv.Atoi(middle)
		if err != nil || n < 1 || segmentName(n) != e.Name() {
			return nil, fmt.Errorf("records: %s is not the name of a segment (records-000001.parquet, ...)", filepath.Join(dir, e.Name()))
		}
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	return numbers, nil
}
