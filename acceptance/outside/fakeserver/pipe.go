package fakeserver

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
)

// Pipe serves a handler through pipes in memory and returns a client for it, of
// any address. Nothing of it waits for the outside, so it may be used in a
// synctest bubble. stop ends both.
func Pipe(h http.Handler) (client *http.Client, stop func()) {
	l := &listener{conns: make(chan net.Conn), closed: make(chan struct{})}
	srv := &http.Server{Handler: h}
	var wg sync.WaitGroup
	wg.Go(func() {
		// It returns when stop closes the listener, and with that error alone.
		_ = srv.Serve(l)
	})
	transport := &http.Transport{DialContext: l.dial, MaxIdleConnsPerHost: 64}
	return &http.Client{Transport: transport}, func() {
		transport.CloseIdleConnections()
		_ = srv.Close()
		wg.Wait()
	}
}

// listener accepts the far ends of pipes.
type listener struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

var errClosed = errors.New("the server is closed")

func (l *listener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case l.conns <- far:
		return near, nil
	case <-l.closed:
		return nil, errClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, errClosed
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }
