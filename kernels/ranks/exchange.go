package ranks

import (
	"fmt"
	"strings"
	"time"

	"exacta.dev/exacta/kernels"
)

// place is the operation at which ranks meet; all must be at the same one.
type place struct {
	op, what   string // operation and tensor
	rows, cols int32  // shape of the whole result
	kind       kernels.Kind
}

func (p place) String() string {
	if p.what == "" {
		return p.op
	}
	return fmt.Sprintf("%s %s to %s [%d, %d]", p.op, p.what, p.kind, p.rows, p.cols)
}

// parcel is what a rank hands to the others. It stays as it is until the rank
// arrives at the exchange after the next.
type parcel struct {
	data   []byte
	hashes []uint64
	// The rank's own work on matrix products so far.
	macs, weightBytes uint64
}

// seat is a rank's part of the meeting point. All but wake and timer is guarded
// by the group's lock.
type seat struct {
	at      place
	parcels [2]parcel // by the parity of the exchange
	arrived bool
	gone    string // why it will not come again
	wake    chan struct{}
	timer   *time.Timer
}

// closed is why a rank is gone for good.
const closed = "was closed"

func (s *seat) open() {
	s.wake = make(chan struct{}, 1)
	s.timer = time.NewTimer(time.Hour)
	s.timer.Stop()
}

// meet hands p over and waits until all ranks have arrived at the same place.
// It returns the parity under which all parcels lie: they may be read until this
// rank meets the others again. Nothing is allocated unless it fails.
func (g *Group) meet(rank int, at place, p parcel) (turn int, err error) {
	s := &g.seats[rank]
	g.mu.Lock()
	turn = int(g.met & 1)
	if g.err == nil {
		g.arrive(rank, at, p)
	}
	if g.err != nil || !s.arrived {
		defer g.mu.Unlock()
		return turn, g.err
	}
	g.mu.Unlock()

	s.timer.Reset(g.timeout)
	select {
	case <-s.wake:
	case <-g.dead:
	case <-s.timer.C:
	}
	s.timer.Stop()
	g.mu.Lock()
	defer g.mu.Unlock()
	if !s.arrived { // the exchange took place, whatever came after it
		select {
		case <-s.wake:
		default:
		}
		return turn, nil
	}
	if g.err == nil {
		g.ends(fmt.Errorf("rank %d waited %s at exchange %d (%s) for %s", rank, g.timeout, g.met, at, g.missing()))
	}
	return turn, g.err
}

// arrive seats a rank; the last one to come lets all go.
func (g *Group) arrive(rank int, at place, p parcel) {
	s := &g.seats[rank]
	s.at, s.parcels[g.met&1], s.arrived = at, p, true
	if g.here++; g.here < len(g.seats) {
		g.lost()
		return
	}
	for i := range g.seats {
		if g.seats[i].at != g.seats[0].at {
			g.ends(fmt.Errorf("the ranks have diverged: at exchange %d rank 0 is at %s, rank %d at %s", g.met, g.seats[0].at, i, g.seats[i].at))
			return
		}
	}
	g.here = 0
	g.met++
	for i := range g.seats {
		g.seats[i].arrived = false
		if i != rank {
			g.seats[i].wake <- struct{}{}
		}
	}
}

// lost fails the group if a rank waits for one that is gone.
func (g *Group) lost() {
	for i := range g.seats {
		if g.seats[i].gone == "" {
			continue
		}
		for j := range g.seats {
			if g.seats[j].arrived {
				g.ends(fmt.Errorf("rank %d %s while rank %d waits at exchange %d (%s)", i, g.seats[i].gone, j, g.met, g.seats[j].at))
				return
			}
		}
	}
}

// missing names the ranks that have not arrived.
func (g *Group) missing() string {
	var names []string
	for i := range g.seats {
		if !g.seats[i].arrived {
			names = append(names, fmt.Sprintf("rank %d", i))
		}
	}
	return strings.Join(names, ", ")
}

// ends makes err the group's error and wakes whoever waits.
func (g *Group) ends(err error) {
	if g.err == nil {
		g.err = fmt.Errorf("ranks: %w", err)
		close(g.dead)
	}
}

// fail reports an error of one rank and returns the group's, which is that of
// the rank that failed first.
func (g *Group) fail(rank int, err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ends(fmt.Errorf("rank %d: %w", rank, err))
	return g.err
}

// leave says that a rank will not come to another exchange.
func (g *Group) leave(rank int, why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := &g.seats[rank]; s.gone == "" || why == closed {
		s.gone = why
	}
	if g.err == nil {
		g.lost()
	}
}

// settle lets ranks that had returned come again.
func (g *Group) settle() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range g.seats {
		if g.seats[i].gone != closed {
			g.seats[i].gone = ""
		}
	}
}
