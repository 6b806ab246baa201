package hub

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"exacta.dev/exacta/internal/disk"
)

// client follows redirects; Go leaves the Authorization header out of those to another
// host. There is no limit for a whole file: idle connections are cut.
var client = &http.Client{Transport: &http.Transport{
	Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: 30 * time.Second, ResponseHeaderTimeout: time.Minute, DisableCompression: true,
}}

// Retries: how often without a new byte, how often in all, and the waits.
const (
	triesIdle = 5
	triesAll  = 1000
	firstWait = time.Second
	mostWait  = 5 * time.Minute
)

// final is an error that trying again does not help.
type final struct{ error }

func (f final) Unwrap() error { return f.error }

// errRange says that the server does not have the bytes asked for.
var errRange = errors.New("the range is refused")

// later is an error after which the server asks to wait.
type later struct {
	error
	wait time.Duration
}

func (l later) Unwrap() error { return l.error }

// retry calls try until it succeeds, fails for good, or has failed too often in a row
// without progress.
func (p *puller) retry(ctx context.Context, try func(context.Context) (progress bool, err error)) error {
	idle, wait := 0, firstWait
	for n := 1; ; n++ {
		progress, err := try(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if f, ok := errors.AsType[final](err); ok {
			return f.error
		}
		if progress {
			idle, wait = 0, firstWait
		}
		if idle++; idle >= triesIdle || n >= triesAll {
			return fmt.Errorf("given up after %d tries: %w", n, err)
		}
		pause := wait
		if l, ok := errors.AsType[later](err); ok {
			pause = l.wait
		} else {
			wait = min(2*wait, mostWait)
		}
		if err := p.o.Sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// status turns an answer that is no success into an error.
func (p *puller) status(resp *http.Response) error {
	err := fmt.Errorf("%s answers %s", resp.Request.URL.Host, resp.Status)
	switch code := resp.StatusCode; {
	case code == http.StatusOK, code == http.StatusPartialContent:
		return nil
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		if p.token == "" {
			return final{fmt.Errorf("%w: the model does not exist, or is for those with access; set HF_TOKEN to a token that has it", err)}
		}
		return final{fmt.Errorf("%w: the token of HF_TOKEN has no access; ask for it on the model's page", err)}
	case code == http.StatusNotFound:
		return final{fmt.Errorf("%w: there is no such model, revision (%s) or file", err, p.id.Revision)}
	case code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable:
		return later{err, retryAfter(resp.Header.Get("Retry-After"))}
	case code == http.StatusRequestedRangeNotSatisfiable:
		return fmt.Errorf("%w: %w", errRange, err)
	case code >= 500, code == http.StatusRequestTimeout:
		return err
	}
	return final{err}
}

// retryAfter reads the header of that name: seconds, or a date.
func retryAfter(text string) time.Duration {
	wait := firstWait
	if n, err := strconv.Atoi(strings.TrimSpace(text)); err == nil {
		wait = time.Duration(min(max(n, 0), int(mostWait/time.Second))) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		wait = time.Until(at)
	}
	return min(max(wait, 0), mostWait)
}

// withoutQuery leaves the query, which may be a signature, out of an error's URL.
func withoutQuery(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		u.URL, _, _ = strings.Cut(u.URL, "?")
	}
	return err
}

// file fetches one file, if it isn't there, and links it into the snapshot.
func (p *puller) file(ctx context.Context, sha string, f remoteFile) error {
	blob := filepath.Join(p.folder, "blobs", f.hash)
	// Where the libraries of Hugging Face lock it too.
	unlock, err := disk.Lock(ctx, filepath.Join(filepath.Dir(p.folder), ".locks", filepath.Base(p.folder), f.hash+".lock"))
	if err != nil {
		return err
	}
	defer unlock()
	if info, err := os.Stat(blob); err == nil && info.Size() == f.size {
		p.report(f.path, f.size, 0)
	} else if err := p.blob(ctx, sha, f, blob); err != nil {
		return err
	}
	link := filepath.Join(p.folder, "snapshots", sha, filepath.FromSlash(f.path))
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		return err
	}
	target, err := filepath.Rel(filepath.Dir(link), blob)
	if err != nil {
		return err
	}
	if old, err := os.Readlink(link); err == nil && old == target {
		return nil
	}
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Symlink(target, link)
}

// blob fetches a content under its own name.
func (p *puller) blob(ctx context.Context, sha string, f remoteFile, blob string) error {
	if err := os.MkdirAll(filepath.Dir(blob), 0o755); err != nil {
		return err
	}
	part := blob + ".incomplete"
	out, err := os.OpenFile(part, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	at, err := out.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if at > f.size {
		at = 0
	}
	var parts []string
	for part := range strings.SplitSeq(f.path, "/") {
		parts = append(parts, url.PathEscape(part))
	}
	d := &download{p: p, f: f, out: out, at: at, url: fmt.Sprintf("%s/%s/resolve/%s/%s", p.endpoint, p.id.Name, sha, strings.Join(parts, "/"))}
	p.report(f.path, at, 0)
	if err := p.retry(ctx, d.try); err != nil {
		return err
	}
	if err := out.Sync(); err != nil {
		return err
	}
	return os.Rename(part, blob)
}

// download is a file being fetched: at bytes of it are in out.
type download struct {
	p   *puller
	f   remoteFile
	out *os.File
	at  int64
	url string
	bad int // times that the whole content had the wrong hash
}

// try asks for the rest, and checks the whole when it is there.
func (d *download) try(ctx context.Context) (progress bool, err error) {
	if d.at < d.f.size || d.f.size == 0 {
		start := d.at
		if err := d.rest(ctx); err != nil {
			return d.at > start, err
		}
	}
	if err := d.check(); err != nil {
		d.bad++
		d.restart()
		if d.bad > 1 {
			return false, final{err}
		}
		return true, err
	}
	return true, nil
}

// restart forgets what was received.
func (d *download) restart() {
	d.p.report(d.f.path, -d.at, 0)
	d.at = 0
}

// rest receives what is missing.
func (d *download) rest(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(d.p.o.Idle, func() { cancel(fmt.Errorf("nothing came for %s", d.p.o.Idle)) })
	defer idle.Stop()
	resp, err := d.p.get(ctx, d.url, d.at)
	if errors.Is(err, errRange) {
		d.restart()
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		return err
	}
	defer resp.Body.Close()
	if d.at > 0 && !continues(resp, d.at) {
		d.restart() // the range was ignored
	}
	if _, err := d.out.Seek(d.at, io.SeekStart); err != nil {
		return final{err}
	}
	buf := make([]byte, 1<<18)
	for {
		n, err := resp.Body.Read(buf)
		idle.Reset(d.p.o.Idle)
		if int64(n) > d.f.size-d.at {
			d.restart()
			return fmt.Errorf("%s sends more than the %d bytes of the file", resp.Request.URL.Host, d.f.size)
		}
		if n > 0 {
			if _, err := d.out.Write(buf[:n]); err != nil {
				return final{err}
			}
			d.at += int64(n)
			d.p.report(d.f.path, int64(n), int64(n))
		}
		switch {
		case err == io.EOF && d.at == d.f.size:
			return nil
		case err == io.EOF:
			return fmt.Errorf("%s ends after %d of %d bytes", resp.Request.URL.Host, d.at, d.f.size)
		case err != nil:
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return fmt.Errorf("after %d of %d bytes: %w", d.at, d.f.size, err)
		}
	}
}

// continues reports whether an answer begins at byte at.
func continues(resp *http.Response, at int64) bool {
	return resp.StatusCode == http.StatusPartialContent &&
		strings.HasPrefix(resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", at))
}

// check compares the hash of the whole content.
func (d *download) check() error {
	if err := d.out.Truncate(d.f.size); err != nil {
		return final{err}
	}
	if _, err := d.out.Seek(0, io.SeekStart); err != nil {
		return final{err}
	}
	var h hash.Hash
	if len(d.f.hash) == 2*sha256.Size {
		h = sha256.New()
	} else { // what Git names a content by
		h = sha1.New()
		fmt.Fprintf(h, "blob %d\x00", d.f.size)
	}
	if _, err := io.Copy(h, d.out); err != nil {
		return final{err}
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != d.f.hash {
		return fmt.Errorf("its content has the hash %s; it must be %s", got, d.f.hash)
	}
	return nil
}
