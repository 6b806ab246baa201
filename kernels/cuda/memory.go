//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"errors"
	"fmt"
	"strings"

	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cuda/driver"
)

// block is device memory with a purpose.
type block struct {
	ptr     driver.Ptr
	bytes   int64
	purpose kernels.Purpose
}

// at returns the address n bytes into the block.
func (b block) at(n int64) driver.Ptr { return b.ptr + driver.Ptr(n) }

// allocator hands out device memory within a budget and knows what it is for.
type allocator struct {
	ctx      *driver.Context
	device   string
	fraction float64
	budget   int64
	held     kernels.Memory
	live     map[driver.Ptr]block
}

func newAllocator(ctx *driver.Context, dev driver.Device, fraction float64) allocator {
	return allocator{
		ctx: ctx, device: dev.Name, fraction: fraction,
		budget: int64(float64(dev.Memory) * fraction),
		live:   map[driver.Ptr]block{},
	}
}

// take returns n bytes. The error of a refusal says what for, how much, what the
// budget is and what holds it.
func (a *allocator) take(p kernels.Purpose, n int64) (block, error) {
	b := block{bytes: n, purpose: p}
	if n == 0 {
		return b, nil
	}
	if a.held.Total()+n > a.budget {
		return block{}, fmt.Errorf("%w: %s for %s is beyond the budget of %s (%.2f of %s; held: %s)",
			kernels.ErrOutOfMemory, size(n), p, size(a.budget), a.fraction, a.device, a.holdings())
	}
	var err error
	if b.ptr, err = a.ctx.Alloc(n); err != nil {
		if driver.IsOutOfMemory(err) {
			free, e := a.ctx.FreeMemory()
			return block{}, errors.Join(fmt.Errorf("%w: %s for %s; %s has %s free of others' use (budget %s; held: %s)",
				kernels.ErrOutOfMemory, size(n), p, a.device, size(free), size(a.budget), a.holdings()), err, e)
		}
		return block{}, err
	}
	a.held[p] += n
	a.live[b.ptr] = b
	return b, nil
}

// give returns a block. The work that uses it must have finished.
func (a *allocator) give(b block) error {
	if b.bytes == 0 {
		return nil
	}
	if _, ok := a.live[b.ptr]; !ok {
		return nil
	}
	delete(a.live, b.ptr)
	a.held[b.purpose] -= b.bytes
	return a.ctx.Free(b.ptr)
}

// close returns all blocks.
func (a *allocator) close() error {
	var errs []error
	for _, b := range a.live {
		errs = append(errs, a.give(b))
	}
	return errors.Join(errs...)
}

// holdings lists what is held by purpose.
func (a *allocator) holdings() string {
	var s []string
	for p, n := range a.held {
		if n > 0 {
			s = append(s, fmt.Sprintf("%s %s", kernels.Purpose(p), size(n)))
		}
	}
	if len(s) == 0 {
		return "nothing"
	}
	return strings.Join(s, ", ")
}

// size writes bytes for people.
func size(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d bytes", n)
}
