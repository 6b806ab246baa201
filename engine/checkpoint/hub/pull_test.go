package hub

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const commitSHA = "89abcdef0123456789abcdef0123456789abcdef"

// server is a hub on the loopback interface that can misbehave.
type server struct {
	*httptest.Server
	files map[string][]byte

	mu    sync.Mutex
	asked []string // "PATH RANGE" of contents
	auth  []string // Authorization headers of all requests

	list    func(w http.ResponseWriter, r *http.Request) bool                           // true: answered
	content func(w http.ResponseWriter, r *http.Request, name string, data []byte) bool // true: answered
}

func newServer(t *testing.T) *server {
	big := make([]byte, 3<<20)
	for i := range big {
		big[i] = byte(rand.Uint32())
	}
	s := &server{files: map[string][]byte{
		"config.json": []byte(`{"model_type":"llama"}`), "model.safetensors": big, "README.md": []byte("text"), "onnx/model.json": []byte("{}"), "empty.json": {},
	}}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	t.Setenv("HF_ENDPOINT", s.URL+"/")
	t.Setenv("HF_HOME", t.TempDir())
	for _, key := range []string{"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HUB_OFFLINE"} {
		t.Setenv(key, "")
	}
	return s
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.auth = append(s.auth, r.Header.Get("Authorization"))
	s.mu.Unlock()
	if strings.HasPrefix(r.URL.Path, "/api/models/org/model/revision/main") {
		if s.list == nil || !s.list(w, r) {
			s.serveList(w)
		}
		return
	}
	name, ok := strings.CutPrefix(r.URL.Path, "/org/model/resolve/"+commitSHA+"/")
	data, there := s.files[name]
	if !ok || !there {
		http.NotFound(w, r)
		return
	}
	s.mu.Lock()
	s.asked = append(s.asked, strings.TrimSpace(name+" "+r.Header.Get("Range")))
	s.mu.Unlock()
	if s.content == nil || !s.content(w, r, name, data) {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	}
}

func (s *server) serveList(w http.ResponseWriter) {
	var siblings []map[string]any
	for name, data := range s.files {
		blob := sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(data)), data...))
		f := map[string]any{"rfilename": name, "size": len(data), "blobId": hex.EncodeToString(blob[:])}
		if strings.HasSuffix(name, ".safetensors") || strings.HasSuffix(name, ".gguf") {
			sum := sha256.Sum256(data)
			f["lfs"] = map[string]any{"sha256": hex.EncodeToString(sum[:]), "size": len(data)}
		}
		siblings = append(siblings, f)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"sha": commitSHA, "siblings": siblings})
}

// pull pulls org/model without waiting, and returns how long it would have waited.
func (s *server) pull(t *testing.T, text string) (dir string, waits []time.Duration, err error) {
	t.Helper()
	id, err := ParseID(text)
	require.NoError(t, err)
	dir, err = Pull(t.Context(), id, Options{Idle: 300 * time.Millisecond, Sleep: func(_ context.Context, d time.Duration) error {
		waits = append(waits, d)
		return nil
	}})
	return dir, waits, err
}

// complete requires that the model is there, as the server has it.
func (s *server) complete(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{"config.json", "model.safetensors", "empty.json"} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.True(t, bytes.Equal(s.files[name], got), name)
		link, err := os.Readlink(filepath.Join(dir, name))
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(link, "../../blobs/"), link)
	}
	require.NoFileExists(t, filepath.Join(dir, "README.md"))
	require.NoFileExists(t, filepath.Join(dir, "onnx/model.json"))
	left, err := filepath.Glob(filepath.Join(dir, "../../blobs/*.*"))
	require.NoError(t, err)
	require.Empty(t, left, "nothing unfinished")
	id, err := ParseID("org/model")
	require.NoError(t, err)
	found, err := Find(id)
	require.NoError(t, err)
	require.Equal(t, dir, found)
}

func TestPull(t *testing.T) {
	s := newServer(t)
	var last Progress
	id, err := ParseID("org/model")
	require.NoError(t, err)
	dir, err := Pull(t.Context(), id, Options{Progress: func(p Progress) { last = p }})
	require.NoError(t, err)
	s.complete(t, dir)
	require.Equal(t, Progress{File: "model.safetensors", Done: last.Total, Total: int64(len(s.files["model.safetensors"]) + len(s.files["config.json"])), Received: last.Total}, last)
	require.Equal(t, []string{"config.json", "empty.json", "model.safetensors"}, sorted(s.asked))

	// A second pull fetches nothing.
	s.asked = nil
	dir, _, err = s.pull(t, "org/model")
	require.NoError(t, err)
	s.complete(t, dir)
	require.Empty(t, s.asked)
}

func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }

// cut answers with the first n bytes of what was asked for and breaks the connection.
func cut(w http.ResponseWriter, r *http.Request, data []byte, n int) {
	from := 0
	_, _ = fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from)
	w.Header().Set("Content-Length", fmt.Sprint(len(data)-from))
	if from > 0 {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(data)-1, len(data)))
		w.WriteHeader(http.StatusPartialContent)
	}
	_, _ = w.Write(data[from:min(from+n, len(data))])
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

func TestPullCutConnections(t *testing.T) {
	s := newServer(t)
	s.content = func(w http.ResponseWriter, r *http.Request, name string, data []byte) bool {
		if name != "model.safetensors" {
			return false
		}
		cut(w, r, data, 1<<19)
		return true
	}
	dir, waits, err := s.pull(t, "org/model")
	require.NoError(t, err, "each try brings it on, however often it is cut")
	s.complete(t, dir)
	require.GreaterOrEqual(t, len(waits), 5)
	for _, d := range waits {
		require.LessOrEqual(t, d, 2*firstWait, "after progress waits begin anew")
	}
	ranges := 0
	for _, a := range s.asked {
		if strings.Contains(a, "bytes=") {
			ranges++
		}
	}
	require.GreaterOrEqual(t, ranges, 5)
}

// A server that never brings anything on is given up.
func TestPullGivesUp(t *testing.T) {
	for what, content := range map[string]func(w http.ResponseWriter, r *http.Request, data []byte){
		"cut at once":  func(http.ResponseWriter, *http.Request, []byte) { panic(http.ErrAbortHandler) },
		"server error": func(w http.ResponseWriter, _ *http.Request, _ []byte) { http.Error(w, "", http.StatusBadGateway) },
		"short":        func(w http.ResponseWriter, _ *http.Request, data []byte) { w.Header().Set("Content-Length", "0") },
		"ranges never": func(w http.ResponseWriter, _ *http.Request, _ []byte) {
			http.Error(w, "", http.StatusRequestedRangeNotSatisfiable)
		},
	} {
		t.Run(what, func(t *testing.T) {
			s := newServer(t)
			s.content = func(w http.ResponseWriter, r *http.Request, name string, data []byte) bool {
				if name != "model.safetensors" {
					return false
				}
				content(w, r, data)
				return true
			}
			_, waits, err := s.pull(t, "org/model")
			require.ErrorContains(t, err, "pull org/model: model.safetensors: given up after 5 tries")
			require.Equal(t, []time.Duration{1e9, 2e9, 4e9, 8e9}, waits)
			id, err := ParseID("org/model")
			require.NoError(t, err)
			_, err = Find(id)
			require.ErrorIs(t, err, os.ErrNotExist, "a model that is not whole is not found")
		})
	}
}

func TestPullResumes(t *testing.T) {
	s := newServer(t)
	s.content = func(w http.ResponseWriter, r *http.Request, name string, data []byte) bool {
		if name != "model.safetensors" {
			return false
		}
		if r.Header.Get("Range") == "" {
			cut(w, r, data, 1<<20)
		}
		http.Error(w, "", http.StatusInternalServerError)
		return true
	}
	_, _, err := s.pull(t, "org/model")
	require.Error(t, err)
	s.content, s.asked = nil, nil
	dir, _, err := s.pull(t, "org/model")
	require.NoError(t, err)
	s.complete(t, dir)
	require.Equal(t, []string{"model.safetensors bytes=1048576-"}, s.asked)
}

// Answers that are not what was asked for end in the right bytes all the same.
func TestPullMisbehaviour(t *testing.T) {
	for what, content := range map[string]func(n int, w http.ResponseWriter, r *http.Request, data []byte){
		"range ignored": func(n int, w http.ResponseWriter, r *http.Request, data []byte) {
			if n == 0 {
				cut(w, r, data, 1<<20)
			}
			_, _ = w.Write(data)
		},
		"another range": func(n int, w http.ResponseWriter, r *http.Request, data []byte) {
			if n == 0 {
				cut(w, r, data, 1<<20)
			}
			w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", len(data)-1, len(data)))
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(data)
		},
		"too short, then whole": func(n int, w http.ResponseWriter, r *http.Request, data []byte) {
			if n == 0 {
				w.Header().Set("Content-Length", "1000")
				_, _ = w.Write(data[:1000])
				return
			}
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
		},
		"too long, then whole": func(n int, w http.ResponseWriter, r *http.Request, data []byte) {
			if n == 0 {
				_, _ = w.Write(append(bytes.Clone(data), "more"...))
				return
			}
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
		},
		"wrong bytes once": func(n int, w http.ResponseWriter, r *http.Request, data []byte) {
			if n == 0 {
				data = bytes.Repeat([]byte{7}, len(data))
			}
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
		},
		"stalls": func(n int, w http.ResponseWriter, r *http.Request, data []byte) {
			if n == 0 {
				_, _ = w.Write(data[:1<<20])
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
				return
			}
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
		},
		"no answer": func(n int, w http.ResponseWriter, r *http.Request, data []byte) {
			if n == 0 {
				<-r.Context().Done()
				return
			}
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
		},
		"range refused": func(n int, w http.ResponseWriter, r *http.Request, data []byte) {
			if n == 0 {
				cut(w, r, data, 1<<20)
			}
			if r.Header.Get("Range") != "" {
				http.Error(w, "", http.StatusRequestedRangeNotSatisfiable)
				return
			}
			_, _ = w.Write(data)
		},
	} {
		t.Run(what, func(t *testing.T) {
			s := newServer(t)
			n := 0
			s.content = func(w http.ResponseWriter, r *http.Request, name string, data []byte) bool {
				if name != "model.safetensors" {
					return false
				}
				n++
				content(n-1, w, r, data)
				return true
			}
			dir, _, err := s.pull(t, "org/model")
			require.NoError(t, err)
			s.complete(t, dir)
			require.Greater(t, n, 1)
		})
	}
}

func TestPullWrongHash(t *testing.T) {
	s := newServer(t)
	s.content = func(w http.ResponseWriter, r *http.Request, name string, data []byte) bool {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(bytes.Repeat([]byte{7}, len(data))))
		return true
	}
	_, _, err := s.pull(t, "org/model")
	require.ErrorContains(t, err, "pull org/model: config.json: its content has the hash ")
	require.ErrorContains(t, err, "; it must be ")
}

func TestPullAccess(t *testing.T) {
	s := newServer(t)
	s.list = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") != "Bearer hf_secret" {
			http.Error(w, "", http.StatusUnauthorized)
			return true
		}
		return false
	}
	_, waits, err := s.pull(t, "org/model")
	require.ErrorContains(t, err, "401 Unauthorized")
	require.ErrorContains(t, err, "set HF_TOKEN")
	require.Empty(t, waits, "trying again does not help")
	t.Setenv("HF_TOKEN", "hf_wrong")
	_, _, err = s.pull(t, "org/model")
	require.ErrorContains(t, err, "no access")
	require.NotContains(t, err.Error(), "hf_wrong")
	t.Setenv("HF_TOKEN", "hf_secret")
	dir, _, err := s.pull(t, "org/model")
	require.NoError(t, err)
	s.complete(t, dir)

	// The token may lie where logging in leaves it.
	t.Setenv("HF_TOKEN", "")
	t.Setenv("HF_HOME", t.TempDir())
	require.NoError(t, os.WriteFile(filepath.Join(os.Getenv("HF_HOME"), "token"), []byte("hf_secret\n"), 0o600))
	_, _, err = s.pull(t, "org/model")
	require.NoError(t, err)
}

// Redirects are followed, and another host is not shown the token.
func TestPullRedirects(t *testing.T) {
	s := newServer(t)
	t.Setenv("HF_TOKEN", "hf_secret")
	var other []string
	mirror := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		other = append(other, r.Header.Get("Authorization"))
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(s.files["model.safetensors"]))
	}))
	defer mirror.Close()
	// The same machine under another name is another host.
	address := strings.Replace(mirror.URL, "127.0.0.1", "localhost", 1)
	s.content = func(w http.ResponseWriter, r *http.Request, name string, data []byte) bool {
		if name == "model.safetensors" {
			http.Redirect(w, r, address+"/blob?signature=secret", http.StatusFound)
			return true
		}
		return false
	}
	dir, _, err := s.pull(t, "org/model")
	require.NoError(t, err)
	s.complete(t, dir)
	require.Equal(t, []string{""}, other)
	require.Contains(t, s.auth, "Bearer hf_secret")

	t.Setenv("HF_HOME", t.TempDir())
	s.content = func(w http.ResponseWriter, r *http.Request, name string, data []byte) bool {
		http.Redirect(w, r, r.URL.Path+"?signature=secret", http.StatusFound)
		return true
	}
	_, _, err = s.pull(t, "org/model")
	require.ErrorContains(t, err, "stopped after 10 redirects")
	require.NotContains(t, err.Error(), "signature")
}

func TestPullWaits(t *testing.T) {
	s := newServer(t)
	n := 0
	s.list = func(w http.ResponseWriter, r *http.Request) bool {
		n++
		if n > 4 {
			return false
		}
		w.Header().Set("Retry-After", []string{"7", time.Now().Add(90 * time.Second).UTC().Format(http.TimeFormat), "nonsense", "99999999"}[n-1])
		http.Error(w, "", []int{http.StatusTooManyRequests, http.StatusServiceUnavailable}[n%2])
		return true
	}
	dir, waits, err := s.pull(t, "org/model")
	require.NoError(t, err)
	s.complete(t, dir)
	require.Len(t, waits, 4)
	require.Equal(t, 7*time.Second, waits[0])
	require.InDelta(t, 89.5, waits[1].Seconds(), 2)
	require.Equal(t, []time.Duration{firstWait, mostWait}, waits[2:])
}

func TestPullRefuses(t *testing.T) {
	for want, list := range map[string]string{
		"is not what was expected":                         `<html>`,
		`names the commit "x", which is none`:              `{"sha":"x"}`,
		`"../a.json", which is not a path`:                 `{"sha":"` + commitSHA + `","siblings":[{"rfilename":"../a.json"}]}`,
		"gives no hash and size of model.safetensors":      `{"sha":"` + commitSHA + `","siblings":[{"rfilename":"model.safetensors","size":3,"blobId":"../x"}]}`,
		"it has no safetensors files that":                 `{"sha":"` + commitSHA + `","siblings":[]}`,
		"name one, as in org/model/b/x.gguf (of b/x.gguf)": `{"sha":"` + commitSHA + `","siblings":[{"rfilename":"b/x.gguf"}]}`,
	} {
		s := newServer(t)
		s.list = func(w http.ResponseWriter, r *http.Request) bool {
			_, _ = w.Write([]byte(list))
			return true
		}
		_, _, err := s.pull(t, "org/model")
		require.ErrorContains(t, err, want)
	}
	s := newServer(t)
	_, _, err := s.pull(t, "org/other")
	require.ErrorContains(t, err, "there is no such model, revision (main) or file")
	_, _, err = s.pull(t, "org/model/x.gguf")
	require.ErrorContains(t, err, "it has no file x.gguf; it has none")
	s.files["q/x.gguf"] = []byte("GGUF")
	path, _, err := s.pull(t, "org/model/q/x.gguf")
	require.NoError(t, err)
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "GGUF", string(got))
	t.Setenv("HF_HUB_OFFLINE", "1")
	_, _, err = s.pull(t, "org/model")
	require.ErrorContains(t, err, "HF_HUB_OFFLINE is 1")
}

// Two pulls at once fetch each file once.
func TestPullTwice(t *testing.T) {
	s := newServer(t)
	var wg sync.WaitGroup
	dirs := make([]string, 2)
	errs := make([]error, 2)
	for i := range dirs {
		wg.Go(func() {
			id, _ := ParseID("org/model")
			dirs[i], errs[i] = Pull(t.Context(), id, Options{})
		})
	}
	wg.Wait()
	require.NoError(t, errs[0])
	require.NoError(t, errs[1])
	s.complete(t, dirs[0])
	require.Equal(t, []string{"config.json", "empty.json", "model.safetensors"}, sorted(s.asked))
}

func TestPullInterrupted(t *testing.T) {
	s := newServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	s.content = func(w http.ResponseWriter, r *http.Request, name string, data []byte) bool {
		if name != "model.safetensors" {
			return false
		}
		_, _ = w.Write(data[:1<<20])
		_ = http.NewResponseController(w).Flush()
		cancel()
		<-r.Context().Done()
		return true
	}
	id, err := ParseID("org/model")
	require.NoError(t, err)
	_, err = Pull(ctx, id, Options{})
	require.ErrorIs(t, err, context.Canceled)
}
