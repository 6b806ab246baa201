package server

import (
	"context"
	"net/http"
	"time"
)

// handleHealth is GET /health: whether the process is worth keeping.
func (s *Server) handleHealth(w http.ResponseWriter, _ *http.Request) {
	if s.worker.err() != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusOK)
}

// handleReady is GET /ready: whether to send requests here.
func (s *Server) handleReady(w http.ResponseWriter, _ *http.Request) {
	if s.worker.err() != nil || s.draining.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusOK)
}

// reserve admits n answers, or says why not.
func (s *Server) reserve(n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var e *apiError
	switch most := s.cfg.Limits.Open; {
	case s.draining.Load():
		e = failure(http.StatusServiceUnavailable, overloaded, "shutting_down", "", "the server is shutting down")
	case s.worker.err() != nil:
		return errDead
	case s.open+n > most:
		e = failure(http.StatusServiceUnavailable, overloaded, "overloaded", "", "the server has %d answers open, of at most %d", s.open, most)
	default:
		s.open += n
		return nil
	}
	e.retry = time.Second
	return e
}

// release counts n answers out.
func (s *Server) release(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open -= n
	if s.open == 0 && s.draining.Load() {
		s.settled()
	}
}

// settled tells Drain that nothing is open. s.mu is held.
func (s *Server) settled() {
	select {
	case <-s.idle:
	default:
		close(s.idle)
	}
}

// OpenAnswers is the number of answers that were admitted and have not ended.
func (s *Server) OpenAnswers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// Dead is closed when the engine has ended, by Close or by an error.
func (s *Server) Dead() <-chan struct{} { return s.worker.done }

// Drain takes no more requests and waits until all answers have ended, or ctx ends.
// Then readiness is gone and liveness is not.
func (s *Server) Drain(ctx context.Context) error {
	s.mu.Lock()
	s.draining.Store(true)
	if s.open == 0 {
		s.settled()
	}
	s.mu.Unlock()
	select {
	case <-s.idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close ends the server: what still runs is cancelled, and the engine is closed.
// Handlers that wait are answered.
func (s *Server) Close() error {
	s.close.Do(func() {
		s.mu.Lock()
		s.draining.Store(true)
		s.mu.Unlock()
		close(s.worker.stop)
		<-s.worker.done
	})
	return s.worker.err()
}
