package workload

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"exacta.dev/exacta/engine/registry"
)

// Env is what sources make requests from.
type Env struct {
	// Seed decides everything that is drawn.
	Seed uint64
	// Vocab is the number of token ids, of which made-up prompts use those that
	// Plain reports to be ordinary tokens; nil takes all.
	Vocab int
	Plain func(id int32) bool
	// Encode makes ids of a text, with chat of it as what a user says to the
	// model; nil where no tokenizer is known.
	Encode func(text string, chat bool) ([]int32, error)
	// Prompts are those that come with the model; nil for none.
	Prompts func() ([]registry.Prompt, error)
	// Lanes is the number of sessions that will be open at once, 0 where times
	// decide.
	Lanes int
}

// Source makes the sessions of a workload: a struct with its settings (yaml tags),
// filled in with defaults by Info.New.
type Source interface {
	// Validate names the setting that is out of range.
	Validate() error
	// Load makes them: the same for the same settings and Env. At is the
	// recorded start where the source has one, and 0 else.
	Load(Env) ([]Session, error)
}

// Arrival says when sessions start: a struct with its settings.
type Arrival interface {
	Validate() error
	// Lanes is the number of sessions that are open at once; 0 has Schedule
	// give each its time.
	Lanes() int
	// Schedule sets the times of sessions, which are in the order in which they
	// start.
	Schedule(sessions []Session, r *rand.Rand) error
}

// Info describes a source or an arrival process.
type Info[T any] struct {
	// Name is what configurations call it, Summary one sentence for users.
	Name, Summary string
	// New returns the settings with their defaults.
	New func() T
}

var (
	sources  = map[string]Info[Source]{}
	arrivals = map[string]Info[Arrival]{}
)

// RegisterSource adds a source, from an init function; a name that is taken
// panics, as does RegisterArrival.
func RegisterSource(i Info[Source]) { register(sources, i) }

// RegisterArrival adds an arrival process.
func RegisterArrival(i Info[Arrival]) { register(arrivals, i) }

func register[T any](all map[string]Info[T], i Info[T]) {
	if _, taken := all[i.Name]; taken || i.Name == "" || i.New == nil {
		panic(fmt.Sprintf("workload: %q is registered twice, or without name or constructor", i.Name))
	}
	all[i.Name] = i
}

// NewSource returns a source with its defaults; the error lists the known ones.
func NewSource(name string) (Source, error) { return find(sources, "source", name) }

// NewArrival is NewSource for arrival processes.
func NewArrival(name string) (Arrival, error) { return find(arrivals, "arrival process", name) }

func find[T any](all map[string]Info[T], what, name string) (none T, err error) {
	i, ok := all[name]
	if !ok {
		return none, fmt.Errorf("unknown %s %q; known: %s", what, name, strings.Join(slices.Sorted(maps.Keys(all)), ", "))
	}
	return i.New(), nil
}

// Sources lists the sources by name.
func Sources() []Info[Source] { return list(sources) }

// Arrivals lists the arrival processes by name.
func Arrivals() []Info[Arrival] { return list(arrivals) }

func list[T any](all map[string]Info[T]) (out []Info[T]) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, all[name])
	}
	return out
}

// Streams of random numbers: what is drawn for one purpose does not move what is
// drawn for another.
const (
	forTokens = iota + 1
	forLengths
	forOrder
	forArrivals
	forStarts
)

func (e *Env) rand(purpose uint64) *rand.Rand { return rand.New(rand.NewPCG(e.Seed, purpose)) }

// Make makes a plan: the sessions of a source, at the times of an arrival process.
func Make(s Source, a Arrival, env Env) (*Plan, error) {
	if err := errors.Join(s.Validate(), a.Validate()); err != nil {
		return nil, err
	}
	env.Lanes = a.Lanes()
	sessions, err := s.Load(env)
	if err != nil {
		return nil, err
	}
	p := &Plan{Sessions: sessions, Lanes: env.Lanes}
	if err := p.check(); err != nil {
		return nil, err
	}
	if p.Lanes > 0 {
		for i := range sessions {
			sessions[i].At = 0
		}
		return p, nil
	}
	return p, a.Schedule(sessions, env.rand(forArrivals))
}
