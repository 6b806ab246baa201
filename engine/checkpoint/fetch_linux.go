package checkpoint

import "golang.org/x/sys/unix"

// fetchPiece is what one call asks for: the system reads no more than its own limit of
// reading ahead at a time, and forgets the rest.
const fetchPiece = 512 << 10

// fetch asks the system to begin to read p, which begins a page of a mapping. It is
// advice: what is not read now is read when it is touched.
func fetch(p []byte) {
	for at := 0; at < len(p); at += fetchPiece {
		if unix.Madvise(p[at:min(at+fetchPiece, len(p))], unix.MADV_WILLNEED) != nil {
			return
		}
	}
}
