package model

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The multipliers of the hashes of the released DeepSeek-V4.1-Flash, and sums of its
// primes, are those that its publisher states.
func TestEngramNumbersOfV41Flash(t *testing.T) {
	for layer, want := range map[int][]uint64{
		1:  {76632096046245, 4839876093313, 35959672319349, 73987337458391},
		14: {67716810739261, 51510806800915, 30921347202721, 82619226485591},
	} {
		require.Equal(t, want, engramMultipliers(layer, 4, 99092))
	}
	first, second := primesFrom(16_000_000, 0, 24), primesFrom(16_000_000, 24, 24)
	require.Equal(t, []uint32{16000057, 16000463, 16000477, 16000889}, []uint32{first[0], first[23], second[0], second[23]})
	_, rows := stacked(first)
	require.Equal(t, 384006168, rows)
	_, rows = stacked(second)
	require.Equal(t, 384016682, rows)
}
