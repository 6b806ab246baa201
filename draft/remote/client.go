// Package remote talks to a drafter in another process over gRPC on a Unix
// socket; draftpb/draft.proto is the protocol, example/ngram_drafter.py a
// drafter in Python. Whatever the other side does costs speed only: a call that
// is late, fails or makes no sense gives no drafts, and for a while nothing is
// asked.
package remote

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"exacta.dev/exacta/draft/remote/draftpb"
)

// Version is the version of the protocol.
const Version = 1

// Options of a Client.
type Options struct {
	// Socket is the path of the drafter's Unix socket.
	Socket string
	// Timeout bounds each call.
	Timeout time.Duration
	// Retry is how long nothing is asked after a fault.
	Retry time.Duration
	// Model and Vocab are told to the drafter; drafts must be below Vocab.
	Model string
	Vocab int
	// Warn is told of each fault, in a sentence; may be nil.
	Warn func(text string)
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Client asks one drafter. It is used from one goroutine.
type Client struct {
	o       Options
	conn    *grpc.ClientConn
	rpc     draftpb.DrafterClient
	session int64
	greeted bool
	until   time.Time // nothing is asked before
	known   map[int64]int
	gone    []int64 // released, and not yet told
}

// Ask is what is asked for one sequence.
type Ask struct {
	Sequence int64
	Tokens   []int32 // the whole text
	K        int
}

// New returns a client. Nothing is connected before the first call.
func New(o Options) (*Client, error) {
	if o.Warn == nil {
		o.Warn = func(string) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	conn, err := grpc.NewClient("unix:"+o.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.6, MaxDelay: max(o.Retry, 10*time.Millisecond)},
			MinConnectTimeout: o.Timeout,
		}))
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", o.Socket, err)
	}
	var id [4]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, err
	}
	session := int64(binary.LittleEndian.Uint32(id[:])>>1) << 32
	return &Client{o: o, conn: conn, rpc: draftpb.NewDrafterClient(conn), session: session, known: map[int64]int{}}, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Propose returns one draft per ask, or nil: a fault was reported, or is not
// long ago.
func (c *Client) Propose(asks []Ask) [][]int32 {
	if c.o.Now().Before(c.until) {
		return nil
	}
	drafts, err := c.propose(asks)
	if err != nil {
		c.fault(err)
		return nil
	}
	return drafts
}

// Release says that a sequence will not be asked about again, or from its
// beginning.
func (c *Client) Release(sequence int64) {
	if _, ok := c.known[sequence]; ok {
		delete(c.known, sequence)
		c.gone = append(c.gone, c.session|sequence)
	}
}

// fault reports what went wrong, and forgets what the drafter was told: it may
// be another process by now.
func (c *Client) fault(err error) {
	c.o.Warn(fmt.Sprintf("draft remote: %v; no drafts for %v", err, c.o.Retry))
	c.until = c.o.Now().Add(c.o.Retry)
	c.greeted = false
	clear(c.known)
	c.gone = c.gone[:0]
}

func (c *Client) propose(asks []Ask) ([][]int32, error) {
	ctx, cancel := context.WithTimeout(context.Background(), c.o.Timeout)
	defer cancel()
	if err := c.hello(ctx); err != nil {
		return nil, err
	}
	if len(c.gone) > 0 {
		if _, err := c.rpc.Release(ctx, &draftpb.ReleaseRequest{Sequences: c.gone}); err != nil {
			return nil, c.failed("Release", err)
		}
		c.gone = c.gone[:0]
	}
	req := &draftpb.ProposeRequest{}
	for _, a := range asks {
		known := min(c.known[a.Sequence], len(a.Tokens))
		req.Asks = append(req.Asks, &draftpb.Ask{Sequence: c.session | a.Sequence, K: int32(a.K), Known: int32(known), Tokens: a.Tokens[known:]})
	}
	reply, err := c.rpc.Propose(ctx, req)
	if err != nil {
		return nil, c.failed("Propose", err)
	}
	if len(reply.Drafts) != len(asks) {
		return nil, fmt.Errorf("the drafter at %s answers %d drafts to %d questions", c.o.Socket, len(reply.Drafts), len(asks))
	}
	for _, a := range asks {
		c.known[a.Sequence] = len(a.Tokens)
	}
	for _, id := range reply.NeedAll {
		delete(c.known, id&^c.session)
	}
	return c.drafts(asks, reply)
}

// drafts checks the ids of a reply.
func (c *Client) drafts(asks []Ask, reply *draftpb.ProposeReply) ([][]int32, error) {
	out := make([][]int32, len(asks))
	for i, d := range reply.Drafts {
		if n := len(d.GetTokens()); n > asks[i].K {
			return nil, fmt.Errorf("the drafter at %s drafts %d tokens where %d were asked for", c.o.Socket, n, asks[i].K)
		}
		for _, id := range d.GetTokens() {
			if id < 0 || int(id) >= c.o.Vocab {
				return nil, fmt.Errorf("the drafter at %s drafts token %d; the vocabulary is 0..%d", c.o.Socket, id, c.o.Vocab-1)
			}
		}
		out[i] = d.GetTokens()
	}
	return out, nil
}

func (c *Client) hello(ctx context.Context) error {
	if c.greeted {
		return nil
	}
	reply, err := c.rpc.Hello(ctx, &draftpb.HelloRequest{Version: Version, Vocab: int32(c.o.Vocab), Model: c.o.Model})
	if err != nil {
		return c.failed("Hello", err)
	}
	if reply.Version != Version {
		return fmt.Errorf("the drafter %q at %s speaks version %d of the protocol; this program speaks %d", reply.Name, c.o.Socket, reply.Version, Version)
	}
	c.greeted = true
	return nil
}

func (c *Client) failed(call string, err error) error {
	s := status.Convert(err)
	return fmt.Errorf("the drafter at %s: %s: %s: %s", c.o.Socket, call, s.Code(), s.Message())
}
