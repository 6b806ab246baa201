//go:build !linux

package experiments

import (
	"errors"
	"fmt"
)

// evict is for Linux alone.
func evict(path string) error {
	return fmt.Errorf("drop %s from the page cache: %w", path, errors.ErrUnsupported)
}
