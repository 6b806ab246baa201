package acceptance

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// segmentName returns the name of segment n, from 1.
func segmentName(n int) string { return fmt.Sprintf("records-%06d.parquet", n) }

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
