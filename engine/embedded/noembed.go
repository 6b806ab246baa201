//go:build noembed

package embedded

import (
	"errors"
	"io/fs"
)

// FS reports that this build carries no model.
func FS() (fs.FS, error) {
	return nil, errors.New("embedded: this binary was built with the tag noembed and carries no model; pass --model DIR or build without the tag")
}
