package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"maps"
	"slices"
)

// Hash is a cheap identity of the checkpoint as 64 hex digits: SHA-256 over
// the configuration files, and over the name, size and header of each weight
// file. It changes with every shape, name, type or setting, but not with the
// values of weights; ContentHash does.
func (ck *Checkpoint) Hash() string {
	h := sha256.New()
	ck.hashSmall(h)
	for _, f := range ck.files {
		field(h, f.name, int64(len(f.data)))
		h.Write(f.head.sum[:])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// ContentHash is the full identity of the checkpoint as 64 hex digits:
// SHA-256 over the configuration files and every byte of the weight files. It
// reads them all; ctx ends it early.
func (ck *Checkpoint) ContentHash(ctx context.Context) (string, error) {
	if ck.closed {
		return "", fmt.Errorf("checkpoint %s is closed", ck.name)
	}
	const block = 16 << 20
	h := sha256.New()
	ck.hashSmall(h)
	for _, f := range ck.files {
		field(h, f.name, int64(len(f.data)))
		for at := 0; at < len(f.data); at += block {
			if err := ctx.Err(); err != nil {
				return "", fmt.Errorf("hash of %s: %w", f.name, err)
			}
			h.Write(f.data[at:min(at+block, len(f.data))])
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func (ck *Checkpoint) hashSmall(h hash.Hash) {
	for _, name := range slices.Sorted(maps.Keys(ck.small)) {
		field(h, name, int64(len(ck.small[name])))
		h.Write(ck.small[name])
	}
}

// field writes a name and a size so that no two sequences of fields run
// together to the same bytes.
func field(h hash.Hash, name string, size int64) {
	var n [16]byte
	binary.LittleEndian.PutUint64(n[:8], uint64(len(name)))
	binary.LittleEndian.PutUint64(n[8:], uint64(size))
	h.Write(n[:])
	h.Write([]byte(name))
}
