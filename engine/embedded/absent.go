package embedded

import "errors"

// ErrAbsent is the error of FS in a build that carries no model.
var ErrAbsent = errors.New("embedded: this binary was built with the tag noembed and carries no model; pass --model DIR or build without the tag")
