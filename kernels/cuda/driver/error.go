//go:build linux && (amd64 || arm64) && !nogpu

package driver

import (
	"errors"
	"fmt"
	"unsafe"
)

// Result is a CUresult.
type Result int32

// Results that callers tell apart.
const (
	success           Result = 0
	ResultOutOfMemory Result = 2
)

// Error is a driver call that failed.
type Error struct {
	Call string // the C function, and what it was called for
	Code Result
	Name string // "CUDA_ERROR_OUT_OF_MEMORY"
	Text string // "out of memory"
}

// Error gives call, name, text and code.
func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s (%s, code %d)", e.Call, e.Name, e.Text, e.Code)
}

// IsOutOfMemory reports whether err is the driver's refusal of memory.
func IsOutOfMemory(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == ResultOutOfMemory
}

// check turns a CUresult into an error; what says what the call was for and may
// be empty.
func (d *Driver) check(r Result, call, what string) error {
	if r == success {
		return nil
	}
	if what != "" {
		call += "(" + what + ")"
	}
	return &Error{Call: call, Code: r, Name: d.text(d.cuGetErrorName, r), Text: d.text(d.cuGetErrorString, r)}
}

func (d *Driver) text(get func(Result, *unsafe.Pointer) Result, r Result) string {
	var p unsafe.Pointer
	if get(r, &p) != success || p == nil {
		return "unknown CUDA error"
	}
	return cString(p)
}

// cString copies a NUL-terminated C string.
func cString(p unsafe.Pointer) string {
	n := 0
	for *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}
