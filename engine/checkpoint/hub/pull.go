package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"exacta.dev/exacta/internal/disk"
)

// Options of Pull; the zero value is for real servers.
type Options struct {
	// Include are patterns (path.Match, of base names) of the files to fetch.
	// Default: those that a model of safetensors is loaded from.
	Include []string
	// Progress is told what has been done; may be nil.
	Progress func(Progress)
	// Idle is how long a connection may give nothing before it is cut. Default a
	// minute.
	Idle time.Duration
	// Sleep waits, for retries. Default: the system's clock.
	Sleep func(ctx context.Context, d time.Duration) error
}

// Progress is how far a pull is.
type Progress struct {
	File        string // being fetched
	Done, Total int64  // bytes of all files, those of an earlier pull included
	Received    int64  // of them, over the network in this pull
}

// modelFiles are the files that models are loaded from.
var modelFiles = []string{"*.json", "*.safetensors", "*.jinja", "merges.txt", "vocab.txt"}

// remoteFile is a file of the server's list.
type remoteFile struct {
	path string
	size int64
	hash string // of the content, in hexadecimal: SHA-256 (64 digits) or Git's SHA-1 of a blob (40)
}

// Pull fetches a model into the cache, or what is missing of it, and returns its
// folder (or GGUF file). Errors name the model and the file, and what would help.
func Pull(ctx context.Context, id ID, o Options) (string, error) {
	p := &puller{id: id, o: o, endpoint: endpoint(), token: token()}
	if p.o.Idle == 0 {
		p.o.Idle = time.Minute
	}
	if p.o.Sleep == nil {
		p.o.Sleep = sleep
	}
	dir, err := p.pull(ctx)
	if err != nil {
		return "", fmt.Errorf("pull %s: %w", id, err)
	}
	return dir, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// puller is a running Pull.
type puller struct {
	id              ID
	o               Options
	endpoint, token string
	folder          string
	progress        Progress
}

func (p *puller) pull(ctx context.Context) (string, error) {
	if os.Getenv("HF_HUB_OFFLINE") == "1" {
		return "", errors.New("HF_HUB_OFFLINE is 1; unset it to fetch")
	}
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	p.folder = p.id.folder(cache)
	sha, files, err := p.list(ctx)
	if err != nil {
		return "", err
	}
	if files, err = p.wanted(files); err != nil {
		return "", err
	}
	for _, f := range files {
		p.progress.Total += f.size
	}
	for _, f := range files {
		if err := p.file(ctx, sha, f); err != nil {
			return "", fmt.Errorf("%s: %w", f.path, err)
		}
	}
	if !commit.MatchString(p.id.Revision) {
		ref := filepath.Join(p.folder, "refs", filepath.FromSlash(p.id.Revision))
		if err := disk.WriteWhole(ref, []byte(sha)); err != nil {
			return "", err
		}
	}
	return filepath.Join(p.folder, "snapshots", sha, filepath.FromSlash(p.id.File)), nil
}

// maxList bounds the server's list of files, in bytes.
const maxList = 64 << 20

// list asks for the commit of the revision and its files.
func (p *puller) list(ctx context.Context) (sha string, files []remoteFile, err error) {
	u := fmt.Sprintf("%s/api/models/%s/revision/%s?blobs=true", p.endpoint, p.id.Name, url.PathEscape(p.id.Revision))
	var text []byte
	err = p.retry(ctx, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, 2*p.o.Idle)
		defer cancel()
		resp, err := p.get(ctx, u, 0)
		if err != nil {
			return false, err
		}
		defer resp.Body.Close()
		if text, err = io.ReadAll(io.LimitReader(resp.Body, maxList+1)); err != nil {
			return false, err
		}
		if len(text) > maxList {
			return false, final{fmt.Errorf("the list of files has more than %d bytes", maxList)}
		}
		return false, nil
	})
	if err != nil {
		return "", nil, err
	}
	var list struct {
		SHA      string `json:"sha"`
		Siblings []struct {
			Name string `json:"rfilename"`
			Size int64  `json:"size"`
			Blob string `json:"blobId"`
			LFS  *struct {
				SHA256 string `json:"sha256"`
				Size   int64  `json:"size"`
			} `json:"lfs"`
		} `json:"siblings"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return "", nil, fmt.Errorf("the list of files of %s is not what was expected: %w", p.endpoint, err)
	}
	if !commit.MatchString(list.SHA) {
		return "", nil, fmt.Errorf("the list of files names the commit %q, which is none", list.SHA)
	}
	for _, s := range list.Siblings {
		f := remoteFile{s.Name, s.Size, s.Blob}
		if s.LFS != nil {
			f.size, f.hash = s.LFS.Size, s.LFS.SHA256
		}
		if !safePath(f.path) {
			return "", nil, fmt.Errorf("the list of files has %q, which is not a path in a model", f.path)
		}
		files = append(files, f)
	}
	return list.SHA, files, nil
}

var hashes = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// wanted picks the files to fetch.
func (p *puller) wanted(all []remoteFile) ([]remoteFile, error) {
	patterns := p.o.Include
	if patterns == nil {
		patterns = modelFiles
	}
	var files []remoteFile
	weights := false
	var ggufs []string
	for _, f := range all {
		take := f.path == p.id.File
		if p.id.File == "" {
			for _, pattern := range patterns {
				ok, err := path.Match(pattern, path.Base(f.path))
				if err != nil {
					return nil, fmt.Errorf("pattern %q: %w", pattern, err)
				}
				// Folders hold the same weights for other programs.
				take = take || ok && (p.o.Include != nil || !strings.Contains(f.path, "/"))
			}
		}
		if strings.HasSuffix(f.path, ".gguf") {
			ggufs = append(ggufs, f.path)
		}
		if !take {
			continue
		}
		if !hashes.MatchString(f.hash) || f.size < 0 {
			return nil, fmt.Errorf("the list of files gives no hash and size of %s", f.path)
		}
		weights = weights || strings.HasSuffix(f.path, ".safetensors")
		files = append(files, f)
	}
	switch {
	case p.id.File != "" && len(files) == 0:
		return nil, fmt.Errorf("it has no file %s; it has %s", p.id.File, some(ggufs))
	case p.id.File == "" && p.o.Include == nil && !weights && len(ggufs) > 0:
		return nil, fmt.Errorf("it has no safetensors files but GGUF ones; name one, as in %s/%s (of %s)", p.id.Name, ggufs[0], some(ggufs))
	case p.id.File == "" && p.o.Include == nil && !weights, len(files) == 0:
		return nil, errors.New("it has no safetensors files that a model could be loaded from")
	}
	slices.SortStableFunc(files, func(a, b remoteFile) int { // small ones first: a wrong model shows early
		return int(min(max(a.size-b.size, -1), 1))
	})
	return files, nil
}

func some(names []string) string {
	switch n := len(names); {
	case n == 0:
		return "none"
	case n > 6:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:6], ", "), n-6)
	}
	return strings.Join(names, ", ")
}

// report adds to the progress.
func (p *puller) report(file string, done, received int64) {
	p.progress.File = file
	p.progress.Done += done
	p.progress.Received += received
	if p.o.Progress != nil {
		p.o.Progress(p.progress)
	}
}

// get sends a request for a URL from byte from on, and returns an answer of success.
func (p *puller) get(ctx context.Context, u string, from int64) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
	if err != nil {
		return nil, final{err}
	}
	req.Header.Set("User-Agent", "exacta")
	// Sizes are those of the content: it must not be packed on the way.
	req.Header.Set("Accept-Encoding", "identity")
	if p.token != "" {
		req.Header.Set("Authorization", "Bearer "+p.token)
	}
	if from > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, withoutQuery(err)
	}
	if err := p.status(resp); err != nil {
		resp.Body.Close()
		return nil, err
	}
	return resp, nil
}
