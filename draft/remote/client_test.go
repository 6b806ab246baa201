package remote

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"exacta.dev/exacta/draft/remote/draftpb"
)

// drafter is the other side; propose answers, after the text was put together.
type drafter struct {
	draftpb.UnimplementedDrafterServer
	version int32
	texts   map[int64][]int32
	propose func(a *draftpb.Ask, text []int32) []int32
	reply   func(*draftpb.ProposeReply)
	wait    time.Duration
}

func (d *drafter) Hello(context.Context, *draftpb.HelloRequest) (*draftpb.HelloReply, error) {
	return &draftpb.HelloReply{Version: d.version, Name: "test"}, nil
}

func (d *drafter) Release(_ context.Context, r *draftpb.ReleaseRequest) (*draftpb.ReleaseReply, error) {
	for _, id := range r.Sequences {
		delete(d.texts, id)
	}
	return &draftpb.ReleaseReply{}, nil
}

func (d *drafter) Propose(ctx context.Context, r *draftpb.ProposeRequest) (*draftpb.ProposeReply, error) {
	select {
	case <-time.After(d.wait):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	out := &draftpb.ProposeReply{}
	for _, a := range r.Asks {
		text := d.texts[a.Sequence]
		if int(a.Known) > len(text) {
			out.NeedAll = append(out.NeedAll, a.Sequence)
			out.Drafts = append(out.Drafts, &draftpb.Draft{})
			continue
		}
		text = append(text[:a.Known:a.Known], a.Tokens...)
		d.texts[a.Sequence] = text
		out.Drafts = append(out.Drafts, &draftpb.Draft{Tokens: d.propose(a, text)})
	}
	if d.reply != nil {
		d.reply(out)
	}
	return out, nil
}

func newDrafter() *drafter {
	return &drafter{version: Version, texts: map[int64][]int32{}, propose: func(a *draftpb.Ask, text []int32) []int32 {
		var out []int32
		for i := range a.K {
			out = append(out, (text[len(text)-1]+i+1)%100)
		}
		return out
	}}
}

// serve runs a drafter and returns its socket and a way to kill it.
func serve(t *testing.T, d *drafter) (socket string, kill func()) {
	t.Helper()
	dir, err := os.MkdirTemp("", "x") // short: socket paths have at most 108 bytes
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket = filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	s := grpc.NewServer()
	draftpb.RegisterDrafterServer(s, d)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return socket, s.Stop
}

// clock is a clock that the test sets.
type clock struct{ now time.Time }

func open(t *testing.T, socket string) (*Client, *clock, *[]string) {
	t.Helper()
	var warned []string
	c := &clock{now: time.Unix(1000, 0)}
	client, err := New(Options{
		Socket: socket, Timeout: 300 * time.Millisecond, Retry: time.Second, Vocab: 100,
		Warn: func(s string) { warned = append(warned, s) }, Now: func() time.Time { return c.now },
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client, c, &warned
}

func TestProposeSendsOnlyWhatIsNew(t *testing.T) {
	d := newDrafter()
	socket, _ := serve(t, d)
	c, _, warned := open(t, socket)
	var sent []int
	inner := d.propose
	d.propose = func(a *draftpb.Ask, text []int32) []int32 {
		sent = append(sent, len(a.Tokens))
		return inner(a, text)
	}
	require.Equal(t, [][]int32{{4, 5}, {8}}, c.Propose([]Ask{{1, []int32{1, 2, 3}, 2}, {2, []int32{7}, 1}}))
	require.Equal(t, [][]int32{{10, 11}}, c.Propose([]Ask{{1, []int32{1, 2, 3, 4, 9}, 2}}))
	require.Equal(t, []int{3, 1, 2}, sent)

	c.Release(1)
	require.Equal(t, [][]int32{{3}}, c.Propose([]Ask{{1, []int32{1, 2}, 1}}))
	require.Equal(t, 2, sent[3], "a released sequence is told again")
	require.Len(t, d.texts, 2)

	clear(d.texts) // it has forgotten
	require.Equal(t, [][]int32{nil}, c.Propose([]Ask{{1, []int32{1, 2, 3}, 1}}))
	require.Equal(t, [][]int32{{4}}, c.Propose([]Ask{{1, []int32{1, 2, 3}, 1}}))
	require.Empty(t, *warned)
}

func TestFaultsGiveNoDrafts(t *testing.T) {
	for name, f := range map[string]struct {
		spoil func(d *drafter)
		want  string
	}{
		"hangs":         {func(d *drafter) { d.wait = time.Minute }, "Propose: DeadlineExceeded"},
		"other version": {func(d *drafter) { d.version = 2 }, "speaks version 2 of the protocol; this program speaks 1"},
		"too many ids": {func(d *drafter) {
			d.propose = func(*draftpb.Ask, []int32) []int32 { return []int32{1, 2, 3} }
		}, "drafts 3 tokens where 2 were asked for"},
		"garbage ids": {func(d *drafter) {
			d.propose = func(*draftpb.Ask, []int32) []int32 { return []int32{100} }
		}, "drafts token 100; the vocabulary is 0..99"},
		"negative ids": {func(d *drafter) {
			d.propose = func(*draftpb.Ask, []int32) []int32 { return []int32{-1} }
		}, "drafts token -1"},
		"no drafts": {func(d *drafter) {
			d.reply = func(r *draftpb.ProposeReply) { r.Drafts = nil }
		}, "answers 0 drafts to 1 questions"},
		"panics": {func(d *drafter) {
			d.reply = func(r *draftpb.ProposeReply) { *r = draftpb.ProposeReply{Drafts: make([]*draftpb.Draft, 2)} }
		}, "drafter at"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDrafter()
			f.spoil(d)
			socket, _ := serve(t, d)
			c, clock, warned := open(t, socket)
			ask := []Ask{{1, []int32{1, 2, 3}, 2}}
			require.Nil(t, c.Propose(ask))
			require.Len(t, *warned, 1)
			require.Contains(t, (*warned)[0], f.want)
			require.Nil(t, c.Propose(ask), "not asked again at once")
			require.Len(t, *warned, 1)

			// When it has been mended, it is used again, from the beginning.
			*d = *newDrafter()
			clock.now = clock.now.Add(2 * time.Second)
			require.Equal(t, [][]int32{{4, 5}}, c.Propose(ask))
		})
	}
}

func TestDeadDrafterComesBack(t *testing.T) {
	d := newDrafter()
	socket, kill := serve(t, d)
	c, clock, warned := open(t, socket)
	ask := []Ask{{1, []int32{1, 2, 3}, 1}}
	require.Equal(t, [][]int32{{4}}, c.Propose(ask))
	kill()
	require.Nil(t, c.Propose(ask))
	require.Len(t, *warned, 1)
	require.Contains(t, (*warned)[0], "Unavailable")

	again := newDrafter()
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	s := grpc.NewServer()
	draftpb.RegisterDrafterServer(s, again)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	require.Eventually(t, func() bool {
		clock.now = clock.now.Add(2 * time.Second)
		return len(c.Propose(ask)) == 1
	}, 10*time.Second, 20*time.Millisecond)
	require.Len(t, again.texts, 1)
}

func TestNobodyListens(t *testing.T) {
	c, _, warned := open(t, filepath.Join(t.TempDir(), "none"))
	require.Nil(t, c.Propose([]Ask{{1, []int32{1}, 1}}))
	require.Len(t, *warned, 1)
	require.Contains(t, (*warned)[0], "Hello: Unavailable")
}
