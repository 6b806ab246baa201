//go:build noembed

package embedded

import "io/fs"

// FS returns ErrAbsent: this build carries no model.
func FS() (fs.FS, error) { return nil, ErrAbsent }
