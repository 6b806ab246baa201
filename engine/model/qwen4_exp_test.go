package model

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/kernels/ref"
)

// TestNumbersOfPublishedTable checks what follows from the configuration of
// Qwen3.8-Flash-Next against the numbers that its file holds.
func TestNumbersOfPublishedTable(t *testing.T) {
	c, err := Shape("qwen3.8-flash-next")
	require.NoError(t, err)
	g := pleTable(c, "t.", 0)
	require.Equal(t, []uint32{
		20000003, 20000023, 20000033, 20000047, 20000059, 20000063, 20000069, 20000077,
		20000081, 20000093, 20000107, 20000147, 20000153, 20000159, 20000161, 20000171,
	}, g.spec.Mod)
	require.Equal(t, []uint64{23703573157769, 20109073645365, 8052911324071}, g.spec.Multipliers)
	require.Equal(t, uint32(320001446-20000171), g.spec.Offset[15])
	rows := 0
	for _, p := range g.parts {
		rows += p.rows
	}
	require.Equal(t, 320001536, rows)
	require.Equal(t, part{"t.shard_127.weight", 2500012}, g.parts[127])
	require.Equal(t, 160, g.dim)
	next := pleTable(c, "t.", 1)
	require.Greater(t, next.spec.Mod[0], g.spec.Mod[15], "a second table goes on behind the first")
}

// TestStoredHashNumbers refuses a file whose hashes are others than those that follow
// from its configuration.
func TestStoredHashNumbers(t *testing.T) {
	const dir, name = "testdata/qwen4_exp", "model.layers.2.ple.ple_embedding.layer_multipliers"
	raw, err := os.ReadFile(filepath.Join(dir, "model.safetensors"))
	require.NoError(t, err)
	list, err := checkpoint.ReadSafetensors(raw)
	require.NoError(t, err)
	for _, x := range list {
		if x.Name == name {
			at := binary.LittleEndian.Uint64(x.Bytes())
			binary.LittleEndian.PutUint64(x.Bytes(), at+2)
		}
	}
	to := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(to, "model.safetensors"), raw, 0o644))
	text, err := os.ReadFile(filepath.Join(dir, "config.json"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(to, "config.json"), text, 0o644))
	ck, err := checkpoint.Open(to)
	require.NoError(t, err)
	defer func() { require.NoError(t, ck.Close()) }()
	be := ref.New()
	defer func() { require.NoError(t, be.Close()) }()
	_, err = Load(be, Checkpoint{ck}, Options{MaxTokens: 64})
	require.ErrorContains(t, err, name)
	require.ErrorContains(t, err, "follows from config.json")
}
