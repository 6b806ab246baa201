package vec

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPick(t *testing.T) {
	t.Setenv(Env, "")
	sets := Sets()
	require.Equal(t, "go", sets[len(sets)-1].Name)
	best, err := Pick("")
	require.NoError(t, err)
	require.Equal(t, sets[0].Name, best.Name)
	for _, s := range sets {
		got, err := Pick(s.Name)
		require.NoError(t, err)
		require.Equal(t, s.Name, got.Name)
		t.Setenv(Env, s.Name)
		got, err = Pick("")
		require.NoError(t, err)
		require.Equal(t, s.Name, got.Name)
	}
	_, err = Pick("sse9")
	require.ErrorContains(t, err, `kernel set "sse9": not available here; this machine has `)
	require.ErrorContains(t, err, "go")
	t.Setenv(Env, "neon")
	_, err = Pick("")
	require.ErrorContains(t, err, "from EXACTA_KERNELS")
}
