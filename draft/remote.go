package draft

import (
	"fmt"
	"time"

	"exacta.dev/exacta/draft/remote"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/kernels"
)

func init() {
	Register(Info{
		Name:    "remote",
		Summary: "a drafter in another process, in any language, over gRPC on a Unix socket",
		New:     func() Strategy { return &Remote{Socket: "exacta-draft.sock", TimeoutMs: 50, RetryMs: 1000} },
		Shared:  true,
	})
}

// Remote configures a drafter in another process, which speaks the protocol of
// draft/remote/draftpb/draft.proto. One that hangs, dies or answers nonsense
// costs speed only: the step goes on without drafts, a warning names the fault,
// and it is asked again after a while.
type Remote struct {
	// Socket is the path of the Unix socket that it listens on.
	Socket string `yaml:"socket" json:"socket"`
	// TimeoutMs bounds each call, in milliseconds.
	TimeoutMs int `yaml:"timeout_ms" json:"timeout_ms"`
	// RetryMs is how long nothing is asked after a fault, in milliseconds.
	RetryMs int `yaml:"retry_ms" json:"retry_ms"`
}

// Validate implements Strategy.
func (c *Remote) Validate() error {
	switch {
	case c.Socket == "":
		return fmt.Errorf("socket is empty; it is the path of the drafter's Unix socket")
	case c.TimeoutMs < 1 || c.TimeoutMs > 60_000:
		return fmt.Errorf("timeout_ms is %d; it must be 1..60000", c.TimeoutMs)
	case c.RetryMs < 0 || c.RetryMs > 3_600_000:
		return fmt.Errorf("retry_ms is %d; it must be 0..3600000", c.RetryMs)
	}
	return nil
}

// Provision implements Strategy. Nothing is connected yet.
func (c *Remote) Provision(env Env) (engine.Drafter, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("draft remote: %w", err)
	}
	name := ""
	if env.Model != nil {
		name = env.Model.Name
	}
	client, err := remote.New(remote.Options{
		Socket: c.Socket, Timeout: time.Duration(c.TimeoutMs) * time.Millisecond, Retry: time.Duration(c.RetryMs) * time.Millisecond,
		Model: name, Vocab: env.Vocab, Warn: env.Warn,
	})
	if err != nil {
		return nil, fmt.Errorf("draft remote: %w", err)
	}
	return &remoteDrafter{client: client}, nil
}

// remoteDrafter asks the other process.
type remoteDrafter struct {
	client *remote.Client
	asks   []remote.Ask
}

var _ engine.Drafter = (*remoteDrafter)(nil)

// Chains implements engine.ChainDrafter: the protocol has no trees.
func (d *remoteDrafter) Chains() bool { return true }

// Name implements engine.Drafter.
func (d *remoteDrafter) Name() string { return "remote" }

// Committed implements engine.Drafter: texts are told with the next question.
func (d *remoteDrafter) Committed(*engine.Step) error { return nil }

// Release implements engine.Drafter.
func (d *remoteDrafter) Release(seq *engine.Sequence) { d.client.Release(seq.ID()) }

// Propose implements engine.Drafter.
func (d *remoteDrafter) Propose(_ kernels.Queue, asks []*engine.Ask) error {
	d.asks = d.asks[:0]
	for _, a := range asks {
		d.asks = append(d.asks, remote.Ask{Sequence: a.Seq.ID(), Tokens: a.Seq.Tokens(), K: a.K})
	}
	drafts := d.client.Propose(d.asks)
	for i, a := range asks {
		a.Draft = engine.Draft{Tokens: a.Draft.Tokens[:0]}
		if drafts != nil {
			a.Draft.Tokens = append(a.Draft.Tokens, drafts[i]...)
		}
	}
	return nil
}

// Close ends the connection.
func (d *remoteDrafter) Close() error { return d.client.Close() }
