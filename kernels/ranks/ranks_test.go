package ranks_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/ranks"
)

// matrix describes random weights.
func matrix(name string, rows, cols int) kernels.Tensor {
	rnd := rand.New(rand.NewPCG(uint64(rows), uint64(cols)))
	b := make([]byte, 2*rows*cols)
	for i := 0; i < len(b); i += 2 {
		b[i], b[i+1] = byte(rnd.Uint32()), 0x3c|byte(rnd.Uint32()&0x83)
	}
	return kernels.Tensor{Name: name, Use: kernels.Matrix, Parts: []kernels.Source{
		{Name: name, Rows: rows, Cols: cols, DType: kernels.DTypeBF16, Data: bytes.NewReader(b)},
	}}
}

// layer is one product on one rank.
type layer struct {
	w      kernels.Weight
	x, dst kernels.Buf
	ids    kernels.Buf
}

const (
	outputs = 320
	inputs  = 128
	height  = 6
)

func load(be *ranks.Backend) (l layer, err error) {
	if l.w, err = be.Load(matrix("proj", outputs, inputs)); err != nil {
		return l, err
	}
	for _, a := range []struct {
		to         *kernels.Buf
		k          kernels.Kind
		rows, cols int
	}{{&l.x, kernels.BF16, height, inputs}, {&l.dst, kernels.F32, height, outputs}, {&l.ids, kernels.I32, height, 1}} {
		if *a.to, err = be.Alloc(kernels.Activations, a.k, a.rows, a.cols); err != nil {
			return l, err
		}
	}
	return l, nil
}

// step looks rows up and multiplies them by the same weight.
func (l layer) step(be *ranks.Backend, rows int) error {
	q := be.Queue()
	ids := []int32{300, 0, 7, 319, 160, 159}
	q.Write(l.ids, unsafe.Slice((*byte)(unsafe.Pointer(&ids[0])), 4*len(ids)))
	q.Embed(l.x.Top(rows), l.w, l.ids)
	q.MatMul(l.dst.Top(rows), l.w, l.x, kernels.Linear{})
	return q.Err()
}

// Each rank holds its part of the weights and does its part of the work; the
// group's figures are those of one rank.
func TestPartsOfTheWork(t *testing.T) {
	for n := 1; n <= 4; n++ {
		g := group(t, n, ranks.Options{})
		work, own, held := make([]kernels.Counters, n), make([]kernels.Counters, n), make([]int64, n)
		require.NoError(t, g.Run(func(be *ranks.Backend) error {
			l, err := load(be)
			if err != nil {
				return err
			}
			if err := errors.Join(l.step(be, height), l.step(be, 2)); err != nil {
				return err
			}
			work[be.Rank()], own[be.Rank()], held[be.Rank()] = be.Work(), be.Own(), be.Memory()[kernels.Weights]
			return nil
		}))
		var sum kernels.Counters
		for r := range n {
			require.EqualValues(t, height+2, work[r].MatMulRows)
			require.EqualValues(t, (height+2)*outputs*inputs, work[r].MACs, "of the group")
			require.EqualValues(t, 2*2*outputs*inputs, work[r].WeightBytes)
			require.EqualValues(t, 6, work[r].Ops)
			require.LessOrEqual(t, held[r], int64(2*outputs*inputs/n+2*64*inputs), "within a panel of the share")
			require.Positive(t, held[r])
			sum = sum.Add(own[r])
		}
		require.EqualValues(t, (height+2)*outputs*inputs, sum.MACs, "nobody computes what another does")
	}
}

// A weight of fewer rows than there are ranks leaves some without a part; they
// take what the others computed, and count the product as it was.
func TestRanksWithoutAPart(t *testing.T) {
	g := group(t, 3, ranks.Options{})
	out := make([][]byte, 3)
	require.NoError(t, g.Run(func(be *ranks.Backend) error {
		l, err := load(be)
		if err != nil {
			return err
		}
		narrow, err := be.Load(matrix("narrow", 5, inputs))
		if err != nil {
			return err
		}
		if err := l.step(be, height); err != nil {
			return err
		}
		before, q := be.Work(), be.Queue()
		q.MatMul(l.dst.Columns(3, 8), narrow, l.x, kernels.Linear{})
		q.Write(l.ids.Top(2), []byte{4, 0, 0, 0, 1, 0, 0, 0})
		q.Embed(l.x.Top(2), narrow, l.ids)
		out[be.Rank()] = make([]byte, l.dst.Bytes()+l.x.Bytes())
		q.Read(out[be.Rank()][:l.dst.Bytes()], l.dst)
		if err := q.Read(out[be.Rank()][l.dst.Bytes():], l.x).Wait(); err != nil {
			return err
		}
		if w := be.Work().Sub(before); w.MatMulRows != height || w.MACs != height*5*inputs || w.Ops != 5 {
			return fmt.Errorf("counted %+v", w)
		}
		return nil
	}))
	require.Equal(t, out[0], out[1])
	require.Equal(t, out[0], out[2])
	require.NotEqual(t, make([]byte, 20), out[2][4*3:4*8])
}

// Exchanges allocate nothing.
func TestExchangesAllocateNothing(t *testing.T) {
	g := group(t, 2, ranks.Options{})
	hashes := []uint64{1, 2, 3}
	require.NoError(t, g.Run(func(be *ranks.Backend) error {
		l, err := load(be)
		if err != nil {
			return err
		}
		q := be.Queue()
		const warm, most = 3, 50
		one := func() {
			q.Embed(l.x, l.w, l.ids)
			q.MatMul(l.dst, l.w, l.x, kernels.Linear{})
			if got, gathered := be.Gather(hashes); gathered != nil || len(got) != 2 || len(got[1]) != 3 {
				err = errors.Join(gathered, fmt.Errorf("gathered %v", got))
			}
		}
		for range warm {
			one()
		}
		if be.Rank() == 1 {
			for range most + 1 {
				one()
			}
			return err
		}
		// AllocsPerRun counts the whole process, the other rank included,
		// and calls once more than it is told.
		if allocs := testing.AllocsPerRun(most, one); allocs != 0 {
			err = errors.Join(err, fmt.Errorf("%v allocations a step", allocs))
		}
		return err
	}))
}

// Ranks that have returned may be called again; a closed group may not.
func TestRunsOneAfterTheOther(t *testing.T) {
	g := group(t, 2, ranks.Options{})
	ls := make([]layer, 2)
	require.NoError(t, g.Run(func(be *ranks.Backend) (err error) {
		ls[be.Rank()], err = load(be)
		return err
	}))
	for range 2 {
		require.NoError(t, g.Run(func(be *ranks.Backend) error { return ls[be.Rank()].step(be, height) }))
	}
	require.NoError(t, g.Err())
	require.NoError(t, g.Close())
	require.ErrorContains(t, g.Run(func(be *ranks.Backend) error { return ls[be.Rank()].step(be, height) }), "the backend is closed")
}

// Gathered lists may differ in length: ranks apart must be able to see it.
func TestGather(t *testing.T) {
	g := group(t, 3, ranks.Options{})
	require.NoError(t, g.Run(func(be *ranks.Backend) error {
		for round := range uint64(5) {
			mine := make([]uint64, be.Rank())
			for i := range mine {
				mine[i] = 100*round + uint64(be.Rank())
			}
			got, err := be.Gather(mine)
			if err != nil {
				return err
			}
			for r, x := range got {
				if len(x) != r || r > 0 && x[r-1] != 100*round+uint64(r) {
					return fmt.Errorf("round %d: rank %d sent %v", round, r, x)
				}
			}
		}
		return nil
	}))
}

func TestBadGroups(t *testing.T) {
	_, err := ranks.New(nil, ranks.Options{})
	require.ErrorContains(t, err, "at least one backend")
	be := newCPU(t)
	_, err = ranks.New([]kernels.Backend{be}, ranks.Options{Timeout: -1})
	require.ErrorContains(t, err, "must be positive")
	_, err = ranks.New([]kernels.Backend{be, other{be}}, ranks.Options{})
	require.ErrorContains(t, err, `rank 1 computes as "abacus-1", rank 0 as "cpu-bf16-1"`)
	require.NoError(t, be.Close())
	_, err = ranks.New([]kernels.Backend{be}, ranks.Options{})
	require.ErrorContains(t, err, "rank 0: cpu: the backend is closed")

	opened := 0
	open := func(rank int) (kernels.Backend, error) {
		if rank == 2 {
			return nil, errors.New("no third device")
		}
		opened++
		return newCPU(t), nil
	}
	idle := func(*ranks.Backend) error { return nil }
	require.ErrorContains(t, ranks.Run(3, open, ranks.Options{}, idle), "rank 2: no third device")
	require.Equal(t, 2, opened)
	require.ErrorContains(t, ranks.Run(0, open, ranks.Options{}, idle), "at least one backend")
	require.NoError(t, ranks.Run(2, open, ranks.Options{}, idle))
}

type other struct{ kernels.Backend }

func (other) Info() kernels.Info { return kernels.Info{Arithmetic: "abacus-1"} }

// What several ranks can't do is an error that says so.
func TestPairedWeightsGoWithSwiGLU(t *testing.T) {
	g := group(t, 1, ranks.Options{})
	be := g.Backend(0)
	pair := matrix("gate", 64, inputs)
	pair.Name, pair.Paired, pair.Parts = "gate_up", true, append(pair.Parts, matrix("up", 64, inputs).Parts...)
	w, err := be.Load(pair)
	require.NoError(t, err)
	l, err := load(be)
	require.NoError(t, err)
	be.Queue().MatMul(l.dst.Columns(0, 64), w, l.x, kernels.Linear{})
	require.ErrorContains(t, be.Queue().Err(), "matmul gate_up: SwiGLU goes with a paired weight")
}
