package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Key lets a client in, within limits.
type Key struct {
	// Name is what logs and metrics call the holder.
	Name string
	// Hash is the SHA-256 of the key.
	Hash [sha256.Size]byte
	// InFlight bounds the requests at a time, TokensPerMinute the prompt and
	// answer tokens; 0 does not.
	InFlight, TokensPerMinute int
}

func checkKeys(keys []Key) error {
	names, hashes := map[string]bool{}, map[[sha256.Size]byte]bool{}
	for _, k := range keys {
		switch {
		case k.Name == "":
			return errors.New("server: a key has no name")
		case names[k.Name]:
			return fmt.Errorf("server: two keys are named %q", k.Name)
		case hashes[k.Hash]:
			return fmt.Errorf("server: key %q is another one's too", k.Name)
		case k.InFlight < 0 || k.TokensPerMinute < 0:
			return fmt.Errorf("server: key %q has a limit below 0", k.Name)
		}
		names[k.Name], hashes[k.Hash] = true, true
	}
	return nil
}

// keyring finds the holder of a key.
type keyring struct {
	keys []*holder
	now  func() time.Time
}

// holder is a key with what its holder uses now.
type holder struct {
	Key
	mu       sync.Mutex
	inFlight int
	tokens   float64 // that may be used now; below 0 after more than was there
	at       time.Time
}

func newKeyring(keys []Key, now func() time.Time) *keyring {
	r := &keyring{now: now}
	for _, k := range keys {
		r.keys = append(r.keys, &holder{Key: k, tokens: float64(k.TokensPerMinute), at: now()})
	}
	return r
}

// find returns the holder of the key that a request brings: nil where the server has
// no keys. Every key is compared, each in the same time.
func (r *keyring) find(q *http.Request) (*holder, error) {
	if len(r.keys) == 0 {
		return nil, nil
	}
	scheme, key, _ := strings.Cut(q.Header.Get("Authorization"), " ")
	sum := sha256.Sum256([]byte(strings.TrimSpace(key)))
	var found *holder
	for _, h := range r.keys {
		if subtle.ConstantTimeCompare(sum[:], h.Hash[:]) == 1 {
			found = h
		}
	}
	if found == nil || !strings.EqualFold(scheme, "Bearer") {
		return nil, failure(http.StatusUnauthorized, badKey, "invalid_api_key", "", "Unauthorized")
	}
	return found, nil
}

// client is a request's share of its key's limits.
type client struct {
	ring *keyring
	key  *holder // nil where there are no keys
}

// enter counts a request in. leave must follow, unless there is an error.
func (r *keyring) enter(key *holder) (*client, error) {
	c := &client{r, key}
	if key == nil {
		return c, nil
	}
	key.mu.Lock()
	defer key.mu.Unlock()
	if key.InFlight > 0 && key.inFlight >= key.InFlight {
		e := failure(http.StatusTooManyRequests, overLimit, "rate_limit_exceeded", "", "this key has %d requests in flight, of at most %d", key.inFlight, key.InFlight)
		e.retry = time.Second
		return nil, e
	}
	key.inFlight++
	return c, nil
}

// leave counts the request out.
func (c *client) leave() {
	if c.key == nil {
		return
	}
	c.key.mu.Lock()
	defer c.key.mu.Unlock()
	c.key.inFlight--
}

// admit lets prompt tokens in, if the minute has room for them: then they are
// spent.
func (c *client) admit(n int) error {
	k := c.key
	if k == nil || k.TokensPerMinute == 0 {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now, rate := c.ring.now(), float64(k.TokensPerMinute)/60
	// A clock that jumps back gives nothing, and one that jumps ahead no more
	// than a minute.
	k.tokens = min(float64(k.TokensPerMinute), k.tokens+rate*max(0, now.Sub(k.at).Seconds()))
	k.at = now
	if float64(n) > float64(k.TokensPerMinute) {
		return failure(http.StatusTooManyRequests, overLimit, "rate_limit_exceeded", "", "the prompt has %d tokens; this key may use %d in a minute", n, k.TokensPerMinute)
	}
	if k.tokens < float64(n) {
		e := failure(http.StatusTooManyRequests, overLimit, "rate_limit_exceeded", "", "this key has used its %d tokens of the minute", k.TokensPerMinute)
		e.retry = time.Duration((float64(n) - k.tokens) / rate * float64(time.Second))
		return e
	}
	k.tokens -= float64(n)
	return nil
}

// spend takes the tokens of an answer.
func (c *client) spend(n int) {
	k := c.key
	if k == nil || k.TokensPerMinute == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tokens -= float64(n)
}

// name is what logs call the client.
func (c *client) name() string {
	if c.key == nil {
		return ""
	}
	return c.key.Name
}
