package sample

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every argument of a stream reaches a part of the counter or key of its own:
// no two of many streams share a word.
func TestStreamsDisjoint(t *testing.T) {
	type word struct {
		key [2]uint32
		ctr [4]uint32
	}
	seen := map[word]string{}
	for _, seed := range []uint64{0, 1, 1 << 32, math.MaxUint64} {
		for _, choice := range []uint32{0, 1, 255} {
			for _, purpose := range []Purpose{Target, Draft, Verify, Recovery, Simulate} {
				for _, length := range []int{0, 1, 2, 256, 1 << 20} {
					for _, offset := range []int{0, 1, 2, 255, 256, 1<<24 - 1} {
						s := Params{Seed: seed, Choice: choice}.Stream(purpose, length, offset)
						for i := range uint32(3) {
							c := s.Ctr
							c[0] = i
							w := word{s.Key, c}
							require.Empty(t, seen[w])
							seen[w] = "taken"
						}
					}
				}
			}
		}
	}
}

func TestStreamIsAddressed(t *testing.T) {
	s := Params{Seed: 42}.Stream(Draft, 17, 3)
	want := []uint64{s.Uint64(0), s.Uint64(1), s.Uint64(2), s.Uint64(3)}
	for _, i := range []uint32{3, 1, 0, 2, 1} {
		require.Equal(t, want[i], s.Uint64(i))
	}
	require.NotEqual(t, want[0], want[1])
}

// The uniforms of neighbouring keys look uniform and independent: chi-square over
// a 16 x 16 grid of pairs, for each way in which two draws can be neighbours.
// 330.5 is the 0.999 quantile at 255 degrees of freedom.
func TestUniformChiSquare(t *testing.T) {
	const n, cells = 1 << 17, 16
	at := Params{Seed: 7}
	for name, pair := range map[string]func(i int) (float64, float64){
		"index": func(i int) (float64, float64) {
			s := at.Stream(Target, 5, 0)
			return s.Uniform(uint32(i)), s.Uniform(uint32(i + 1))
		},
		"purpose": func(i int) (float64, float64) {
			return at.Stream(Draft, i, 0).Uniform(0), at.Stream(Verify, i, 0).Uniform(0)
		},
		"length": func(i int) (float64, float64) {
			return at.Stream(Verify, i, 0).Uniform(0), at.Stream(Verify, i+1, 0).Uniform(0)
		},
		"offset": func(i int) (float64, float64) {
			return at.Stream(Verify, i, 0).Uniform(0), at.Stream(Verify, i, 1).Uniform(0)
		},
		"seed": func(i int) (float64, float64) {
			return Params{Seed: uint64(i)}.Stream(Draft, 9, 0).Uniform(0), Params{Seed: uint64(i + 1)}.Stream(Draft, 9, 0).Uniform(0)
		},
	} {
		var count [cells * cells]float64
		for i := range n {
			x, y := pair(i)
			count[int(x*cells)*cells+int(y*cells)]++
		}
		chi := 0.0
		for _, c := range count {
			d := c - n/(cells*cells)
			chi += d * d / (n / (cells * cells))
		}
		require.Less(t, chi, 330.5, name)
		require.Greater(t, chi, 180.0, name) // too even is as bad
	}
}
