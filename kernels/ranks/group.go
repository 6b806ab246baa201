package ranks

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"exacta.dev/exacta/kernels"
)

// Options configures a group.
type Options struct {
	// Timeout is the longest that a rank waits for the others at an exchange.
	// Default one minute.
	Timeout time.Duration
}

// Group is a number of ranks that hold one model together.
type Group struct {
	backends []*Backend
	timeout  time.Duration

	mu    sync.Mutex
	seats []seat
	here  int    // ranks that have arrived at the coming exchange
	met   uint64 // exchanges that took place
	err   error  // the first failure of any rank
	dead  chan struct{}
}

// New makes a group of one rank per inner backend, which from then on belong to
// it: they must not be used directly, and closing the group closes them. The
// backends must be of one arithmetic.
func New(inner []kernels.Backend, o Options) (*Group, error) {
	if len(inner) == 0 {
		return nil, errors.New("ranks: a group needs at least one backend")
	}
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	if o.Timeout < 0 {
		return nil, fmt.Errorf("ranks: a timeout of %s; it must be positive", o.Timeout)
	}
	g := &Group{timeout: o.Timeout, seats: make([]seat, len(inner)), dead: make(chan struct{})}
	want := inner[0].Info().Arithmetic
	for i, in := range inner {
		if got := in.Info().Arithmetic; got != want {
			return nil, fmt.Errorf("ranks: rank %d computes as %q, rank 0 as %q; ranks must be of one arithmetic", i, got, want)
		}
		be, err := newBackend(g, i, in)
		if err != nil {
			return nil, fmt.Errorf("ranks: rank %d: %w", i, err)
		}
		g.backends = append(g.backends, be)
		g.seats[i].open()
	}
	return g, nil
}

// Size returns the number of ranks.
func (g *Group) Size() int { return len(g.backends) }

// Backend returns the backend of a rank, from 0.
func (g *Group) Backend(rank int) *Backend { return g.backends[rank] }

// Err returns the first failure of any rank, which ended the group.
func (g *Group) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// Close closes all ranks.
func (g *Group) Close() error {
	var errs []error
	for _, be := range g.backends {
		errs = append(errs, be.Close())
	}
	return errors.Join(errs...)
}

// Run calls f once per rank, each in a goroutine of its own, waits for all and
// joins their errors, each with its rank. An error, a panic or an early end of
// one rank's goroutine fails the group, so that the others, if they wait for it
// at an exchange, end with an error as well; so does the return of a rank that
// others still wait for.
func (g *Group) Run(f func(be *Backend) error) error {
	g.settle()
	errs := make([]error, len(g.backends))
	var wg sync.WaitGroup
	for i, be := range g.backends {
		wg.Go(func() {
			err := errors.New("its goroutine ended before its function returned")
			defer func() {
				if p := recover(); p != nil {
					err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
				}
				if err == nil {
					g.leave(i, "has returned")
					return
				}
				_ = g.fail(i, err) // what f returned is the error to report
				errs[i] = fmt.Errorf("rank %d: %w", i, err)
			}()
			err = f(be)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Run makes a group of n ranks whose backends open returns, calls f for each
// rank as Group.Run does, and closes the group.
func Run(n int, open func(rank int) (kernels.Backend, error), o Options, f func(be *Backend) error) error {
	var inner []kernels.Backend
	closeAll := func() (err error) {
		for _, be := range inner {
			err = errors.Join(err, be.Close())
		}
		return err
	}
	for i := range n {
		be, err := open(i)
		if err != nil {
			return errors.Join(fmt.Errorf("ranks: rank %d: %w", i, err), closeAll())
		}
		inner = append(inner, be)
	}
	g, err := New(inner, o)
	if err != nil {
		return errors.Join(err, closeAll())
	}
	return errors.Join(g.Run(f), g.Close())
}
