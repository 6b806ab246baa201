package server

import (
	_ "embed"
	"net/http"
)

// page is the live page: one file, which asks nothing of any other host.
//
//go:embed page/index.html
var page []byte

// handlePage is GET /. The page holds nothing of the server: what it shows it asks
// for as any client does, with a key where one is needed.
func handlePage(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	_, _ = w.Write(page) // a client that is gone does not notice
}
