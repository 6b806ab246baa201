package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/pprof"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"exacta.dev/exacta/engine/sched"
)

// Server answers HTTP requests with an engine. It is an http.Handler.
type Server struct {
	cfg         Config
	worker      *worker
	meter       *meter
	ring        *keyring
	grammars    grammarCache
	mux         *http.ServeMux
	strategies  []string
	context     int // tokens of the longest sequence
	most        int // drafts
	fingerprint string
	started     time.Time

	mu       sync.Mutex
	open     int           // answers that were admitted and have not ended
	idle     chan struct{} // closed when open is 0 while draining
	draining atomic.Bool
	close    sync.Once
}

// New makes a server and starts its engine. Close it.
func New(cfg Config) (*Server, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, mux: http.NewServeMux(), started: time.Now(), ring: newKeyring(cfg.Keys, time.Now), idle: make(chan struct{})}
	s.worker = newWorker(cfg.Logger, nil)
	s.meter = newMeter(cfg.Metrics, cfg.Model.Name, func() sched.Load { return *s.worker.load.Load() }, s.OpenAnswers)
	s.worker.meter = s.meter
	eng, err := cfg.Open(s.worker.listener())
	if err != nil {
		return nil, err
	}
	s.worker.eng = eng
	s.strategies = append([]string{plain}, eng.DrafterNames()...)
	s.context, s.most = eng.Config().MaxTokens, eng.Config().MaxDraft
	d := cfg.Default
	if d.Strategy != plain && !s.has(d.Strategy) || d.K < 0 || d.K > s.most {
		_ = eng.Close()
		return nil, fmt.Errorf("server: the default strategy is %q with k %d; there are %v with k up to %d", d.Strategy, d.K, s.strategies, s.most)
	}
	sum := sha256.Sum256([]byte(cfg.Model.Name + cfg.Version + strings.Join(s.strategies, ",")))
	s.fingerprint = "exacta-" + cfg.Version + "-" + hex.EncodeToString(sum[:4])
	s.meter.expect(s.strategies)
	s.routes()
	go s.worker.run()
	return s, nil
}

// has says whether the engine has a drafter.
func (s *Server) has(drafter string) bool { return slices.Contains(s.strategies[1:], drafter) }

// handler answers a request, or returns an error for the client, if nothing was
// written yet.
type handler func(w http.ResponseWriter, r *http.Request, who *client) error

// routes lists what the server answers.
func (s *Server) routes() {
	for path, h := range map[string]handler{
		"POST /v1/chat/completions": s.handleChat,
		"POST /v1/completions":      s.handleCompletion,
		"GET /v1/models":            s.handleModels,
		"GET /v1/models/{name...}":  s.handleModel,
		"POST /tokenize":            s.handleTokenize,
		"POST /detokenize":          s.handleDetokenize,
	} {
		s.mux.Handle(path, s.guard(path, h))
	}
	s.mux.HandleFunc("GET /{$}", handlePage)
	s.mux.HandleFunc("GET /health", s.handleHealth)
	s.mux.HandleFunc("GET /ready", s.handleReady)
	s.mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"version": s.cfg.Version})
	})
	s.mux.Handle("GET /metrics", promhttp.HandlerFor(s.cfg.Metrics, promhttp.HandlerOpts{}))
	if s.cfg.Pprof {
		s.mux.Handle("GET /debug/pprof/", s.guard("GET /debug/pprof/", func(w http.ResponseWriter, r *http.Request, _ *client) error {
			switch name := strings.TrimPrefix(r.URL.Path, "/debug/pprof/"); name {
			case "profile":
				pprof.Profile(w, r)
			case "trace":
				pprof.Trace(w, r)
			default:
				pprof.Index(w, r)
			}
			return nil
		}))
	}
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.cors(w, r) {
		return
	}
	_, pattern := s.mux.Handler(r)
	if pattern == "" {
		s.unknown(w, r)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// unknown answers what no route takes.
func (s *Server) unknown(w http.ResponseWriter, r *http.Request) {
	status := http.StatusNotFound
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		other := r.Clone(r.Context())
		other.Method = method
		if _, pattern := s.mux.Handler(other); pattern != "" {
			w.Header().Add("Allow", method)
			status = http.StatusMethodNotAllowed
		}
	}
	s.meter.responses.WithLabelValues("other", fmt.Sprint(status)).Inc()
	writeError(w, failure(status, badRequest, "", "", "%s %s: %s", short(r.Method), short(r.URL.Path), strings.ToLower(http.StatusText(status))))
}

// spanKey is the context's key of the request's trace.
type spanKey struct{}

func spanOf(r *http.Request) *lifeSpan { return r.Context().Value(spanKey{}).(*lifeSpan) }

// guard lets holders of a key in, within their limits, and answers errors.
func (s *Server) guard(route string, h handler) http.Handler {
	_, path, _ := strings.Cut(route, " ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen := &statusWriter{ResponseWriter: w}
		span := s.startSpan(r)
		r = r.WithContext(context.WithValue(span.ctx, spanKey{}, span))
		defer func() {
			if p := recover(); p != nil {
				s.cfg.Logger.Error("a handler panicked", "path", path, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				s.fail(seen, failure(http.StatusInternalServerError, serverError, "", "", "internal error"))
			}
			// The next request on the connection has its own time.
			_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
			s.meter.responses.WithLabelValues(path, fmt.Sprint(seen.status)).Inc()
			span.end(seen.status)
		}()
		key, err := s.ring.find(r)
		var who *client
		if err == nil {
			who, err = s.ring.enter(key)
		}
		if err == nil {
			defer who.leave()
			err = h(seen, r, who)
		}
		if err != nil {
			s.fail(seen, asAPI(err))
		}
	})
}

// fail answers with an error, if the client can still be told.
func (s *Server) fail(w *statusWriter, e *apiError) {
	if w.status != 0 || e.status == statusClosed {
		w.status = e.status
		return
	}
	writeError(w, e)
}

// statusWriter remembers the status.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *statusWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// cors answers what browsers ask of a server of another origin. It reports whether
// the request ends there.
func (s *Server) cors(w http.ResponseWriter, r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" || len(s.cfg.Origins) == 0 {
		return false
	}
	w.Header().Add("Vary", "Origin")
	switch {
	case slices.Contains(s.cfg.Origins, "*"):
		w.Header().Set("Access-Control-Allow-Origin", "*")
	case slices.Contains(s.cfg.Origins, origin):
		w.Header().Set("Access-Control-Allow-Origin", origin)
	default:
		return false
	}
	if r.Method != http.MethodOptions {
		return false
	}
	w.Header().Set("Access-Control-Allow-Methods", "GET, POST")
	w.Header().Set("Access-Control-Allow-Headers", "Authorization, Content-Type, X-Request-Id")
	w.WriteHeader(http.StatusNoContent)
	return true
}

// named checks the name of a model; none is fine.
func (s *Server) named(name string) error {
	if name == "" || name == s.cfg.Model.Name {
		return nil
	}
	return failure(http.StatusNotFound, "not_found_error", "model_not_found", "model", "the model %q does not exist; this server has %q", short(name), s.cfg.Model.Name)
}

// requestID is the id that an answer's header has: the client's own, if it is one.
func requestID(r *http.Request, own string) string {
	id := r.Header.Get("X-Request-Id")
	ok := id != "" && len(id) <= 128 && strings.IndexFunc(id, func(c rune) bool { return c <= ' ' || c > '~' }) < 0
	if !ok {
		return own
	}
	return id
}
