package hub

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// ID names a model: ORG/NAME, with @REVISION for another revision than main, and /PATH
// of a GGUF file for one file of it.
type ID struct {
	Name     string // ORG/NAME, or NAME alone for some old ones
	Revision string // branch, tag or commit
	File     string // path of a GGUF file in it; empty for the whole model
}

var (
	idPart   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,95}$`)
	revision = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}$`)
	commit   = regexp.MustCompile(`^[0-9a-f]{40}$`)
)

// ParseID reads an id: ORG/NAME, ORG/NAME@REVISION, ORG/NAME/FILE.gguf. The error says
// what is wrong with it.
func ParseID(text string) (ID, error) {
	id := ID{Revision: "main"}
	name, rev, given := strings.Cut(text, "@")
	if given {
		if !revision.MatchString(rev) || strings.Contains(rev, "..") {
			return id, fmt.Errorf("%q: %q is not the name of a revision", text, rev)
		}
		id.Revision = rev
	}
	parts := strings.Split(name, "/")
	if len(parts) > 2 && strings.HasSuffix(name, ".gguf") {
		id.File = strings.Join(parts[2:], "/")
		parts = parts[:2]
	}
	if len(parts) > 2 {
		return id, fmt.Errorf("%q is not the id of a model; ids are ORG/NAME, ORG/NAME@REVISION or ORG/NAME/FILE.gguf", text)
	}
	for _, p := range parts {
		if !idPart.MatchString(p) || strings.Contains(p, "--") || strings.Contains(p, "..") {
			return id, fmt.Errorf("%q is not the id of a model; ids are ORG/NAME, ORG/NAME@REVISION or ORG/NAME/FILE.gguf", text)
		}
	}
	if id.File != "" && !safePath(id.File) {
		return id, fmt.Errorf("%q: %q is not a path in a model", text, id.File)
	}
	id.Name = strings.Join(parts, "/")
	return id, nil
}

// String is the id as ParseID reads it.
func (id ID) String() string {
	s := id.Name
	if id.File != "" {
		s += "/" + id.File
	}
	if id.Revision != "main" {
		s += "@" + id.Revision
	}
	return s
}

// safePath reports whether a path from outside stays in its folder.
func safePath(p string) bool {
	return fs.ValidPath(p) && p != "." && !strings.ContainsAny(p, "\\\x00:")
}

// CacheDir is the folder of the cache: HF_HUB_CACHE, or hub in HF_HOME, or
// huggingface/hub in XDG_CACHE_HOME or ~/.cache.
func CacheDir() (string, error) {
	for _, key := range []string{"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"} {
		if dir := os.Getenv(key); dir != "" {
			return dir, nil
		}
	}
	home, err := homeDir()
	return filepath.Join(home, "hub"), err
}

func homeDir() (string, error) {
	if dir := os.Getenv("HF_HOME"); dir != "" {
		return dir, nil
	}
	if dir := os.Getenv("XDG_CACHE_HOME"); dir != "" {
		return filepath.Join(dir, "huggingface"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("the cache of models: %w; set HF_HOME", err)
	}
	return filepath.Join(home, ".cache", "huggingface"), nil
}

// folder is where the cache has a model.
func (id ID) folder(cache string) string {
	return filepath.Join(cache, "models--"+strings.ReplaceAll(id.Name, "/", "--"))
}

// Find returns the folder (or the GGUF file) of a model in the cache. The error of one
// that is not there satisfies errors.Is(err, fs.ErrNotExist) and names the command
// that fetches it.
func Find(id ID) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	missing := func(what string) error {
		return fmt.Errorf("model %s is not in %s (%s): %w; exacta pull %s fetches it", id.Name, cache, what, fs.ErrNotExist, id)
	}
	folder, sha := id.folder(cache), id.Revision
	if !commit.MatchString(sha) {
		text, err := os.ReadFile(filepath.Join(folder, "refs", filepath.FromSlash(id.Revision)))
		if errors.Is(err, fs.ErrNotExist) {
			return "", missing("no revision " + id.Revision)
		}
		if err != nil {
			return "", fmt.Errorf("model %s: %w", id.Name, err)
		}
		if sha = strings.TrimSpace(string(text)); !commit.MatchString(sha) {
			return "", fmt.Errorf("model %s: refs/%s in %s holds %q, which is not a commit; remove it and pull the model again", id.Name, id.Revision, folder, sha)
		}
	}
	path := filepath.Join(folder, "snapshots", sha, filepath.FromSlash(id.File))
	if _, err := os.Stat(path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return "", missing("no " + filepath.Join("snapshots", sha, id.File))
		}
		return "", fmt.Errorf("model %s: %w", id.Name, err)
	}
	return path, nil
}

// token is what the server is shown: HF_TOKEN, or the file that logging in leaves.
func token() string {
	for _, key := range []string{"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"} {
		if t := strings.TrimSpace(os.Getenv(key)); t != "" {
			return t
		}
	}
	path := os.Getenv("HF_TOKEN_PATH")
	if path == "" {
		home, err := homeDir()
		if err != nil {
			return ""
		}
		path = filepath.Join(home, "token")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// endpoint is the server's address without a slash at its end.
func endpoint() string {
	if e := os.Getenv("HF_ENDPOINT"); e != "" {
		return strings.TrimRight(e, "/")
	}
	return "https://huggingface.co"
}
