package main

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A model that is not there is named with the command that fetches it, is fetched from
// a server, and then runs by its id.
func TestPullThenRun(t *testing.T) {
	const sha = "0123456789abcdef0123456789abcdef01234567"
	var siblings []map[string]any
	for _, name := range []string{"config.json", "model.safetensors"} {
		data, err := os.ReadFile(filepath.Join(toy, name))
		require.NoError(t, err)
		siblings = append(siblings, map[string]any{
			"rfilename": name, "size": len(data), "blobId": fmt.Sprintf("%x", sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(data)), data...))),
			"lfs": map[string]any{"size": len(data), "sha256": fmt.Sprintf("%x", sha256.Sum256(data))},
		})
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/api/models/org/toy/") {
			_ = json.NewEncoder(w).Encode(map[string]any{"sha": sha, "siblings": siblings})
			return
		}
		http.ServeFile(w, r, filepath.Join(toy, filepath.Base(r.URL.Path)))
	}))
	defer server.Close()
	t.Setenv("HF_ENDPOINT", server.URL)
	t.Setenv("HF_HUB_CACHE", t.TempDir())

	code, _, errs := exacta(t, "score", "--model", "org/toy", "--ids", "1,2")
	require.Equal(t, exitBad, code)
	require.Contains(t, errs, "exacta pull org/toy fetches it")
	v := object(t, "pull", "org/toy")
	require.Equal(t, []string{"bytes", "model", "path", "received"}, keys(v))
	require.Equal(t, v["bytes"], v["received"])
	require.DirExists(t, v["path"].(string))
	want := fine(t, "score", "--model", toy, "--ids", "1,2")
	require.Equal(t, want, fine(t, "score", "--model", "org/toy", "--ids", "1,2"))
	require.Equal(t, v["path"], strings.TrimSpace(fine(t, "pull", "org/toy")))

	code, _, errs = exacta(t, "pull", "a/b/c")
	require.Equal(t, exitBad, code)
	require.Contains(t, errs, "ids are ORG/NAME")
}
