package hub

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseID(t *testing.T) {
	for text, want := range map[string]ID{
		"gpt2":                {Name: "gpt2", Revision: "main"},
		"Qwen/Qwen3-0.6B":     {Name: "Qwen/Qwen3-0.6B", Revision: "main"},
		"a/b@v1.0":            {Name: "a/b", Revision: "v1.0"},
		"a/b@refs/pr/3":       {Name: "a/b", Revision: "refs/pr/3"},
		"a/b/sub/x-Q4_K.gguf": {Name: "a/b", Revision: "main", File: "sub/x-Q4_K.gguf"},
		"a/b/x.gguf@0123":     {Name: "a/b", Revision: "0123", File: "x.gguf"},
	} {
		id, err := ParseID(text)
		require.NoError(t, err, text)
		require.Equal(t, want, id)
		require.Equal(t, text, id.String())
	}
	for _, text := range []string{"", "/", "a/", "/a", "a/b/c", "../a", "a/..", "a--b/c", "a/b@", "a/b@../x", "a/../x.gguf", "a/b/../../x.gguf", "a b/c", "-a/b", "a/b/c\\d.gguf", strings.Repeat("a", 97) + "/b"} {
		_, err := ParseID(text)
		require.Error(t, err, text)
	}
}

func TestFind(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("HF_HUB_CACHE", cache)
	id, err := ParseID("org/model")
	require.NoError(t, err)
	_, err = Find(id)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "exacta pull org/model fetches it")

	const sha = "0123456789abcdef0123456789abcdef01234567"
	folder := filepath.Join(cache, "models--org--model")
	snapshot := filepath.Join(folder, "snapshots", sha)
	require.NoError(t, os.MkdirAll(snapshot, 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "refs"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "refs", "main"), []byte(sha), 0o644))
	got, err := Find(id)
	require.NoError(t, err)
	require.Equal(t, snapshot, got)
	id.Revision = sha
	got, err = Find(id)
	require.NoError(t, err)
	require.Equal(t, snapshot, got)
	id.File = "x.gguf"
	_, err = Find(id)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(filepath.Join(snapshot, "x.gguf"), nil, 0o644))
	got, err = Find(id)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(snapshot, "x.gguf"), got)

	id.Revision = "main"
	require.NoError(t, os.WriteFile(filepath.Join(folder, "refs", "main"), []byte("../../../etc"), 0o644))
	_, err = Find(id)
	require.ErrorContains(t, err, "which is not a commit")
}

// The cache is where the libraries of Hugging Face have it.
func TestCacheDir(t *testing.T) {
	for _, key := range []string{"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"} {
		t.Setenv(key, "")
	}
	t.Setenv("HOME", "/home/x")
	for _, c := range []struct{ key, value, want string }{
		{"HOME", "/home/x", "/home/x/.cache/huggingface/hub"},
		{"XDG_CACHE_HOME", "/xdg", "/xdg/huggingface/hub"},
		{"HF_HOME", "/hf", "/hf/hub"},
		{"HUGGINGFACE_HUB_CACHE", "/old", "/old"},
		{"HF_HUB_CACHE", "/hub", "/hub"},
	} {
		t.Setenv(c.key, c.value)
		dir, err := CacheDir()
		require.NoError(t, err)
		require.Equal(t, c.want, dir, c.key)
	}
}
