//go:build linux && (amd64 || arm64) && !nogpu

package driver

import (
	"fmt"
	"strings"

	"github.com/ebitengine/purego"
)

// library is an opened shared object and the symbols that it turned out to lack.
type library struct {
	name    string
	handle  uintptr
	missing []string
}

// openLibrary opens the first of names that the loader finds. The error lists
// what was tried, with the loader's own words for each.
func openLibrary(what string, names []string) (*library, error) {
	var tried []string
	for _, n := range names {
		h, err := purego.Dlopen(n, purego.RTLD_NOW|purego.RTLD_GLOBAL)
		if err == nil {
			return &library{name: n, handle: h}, nil
		}
		tried = append(tried, err.Error())
	}
	return nil, fmt.Errorf("%s not found; tried %s", what, strings.Join(tried, "; "))
}

// bind points fn, a pointer to a function variable, at a symbol.
func (l *library) bind(fn any, symbol string) {
	if a := l.addr(symbol); a != 0 {
		purego.RegisterFunc(fn, a)
	}
}

// addr returns the address of a symbol, noting a missing one.
func (l *library) addr(symbol string) uintptr {
	a, err := purego.Dlsym(l.handle, symbol)
	if err != nil || a == 0 {
		l.missing = append(l.missing, symbol)
		return 0
	}
	return a
}

// complete returns an error that names all missing symbols.
func (l *library) complete(need string) error {
	if len(l.missing) == 0 {
		return nil
	}
	return fmt.Errorf("%s lacks %s; %s", l.name, strings.Join(l.missing, ", "), need)
}
