package draft_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/draft"
	"exacta.dev/exacta/draft/strategytest"
	"exacta.dev/exacta/engine"
)

func TestRemoteValidate(t *testing.T) {
	good := draft.Remote{Socket: "s", TimeoutMs: 50}
	require.NoError(t, good.Validate())
	for key, spoil := range map[string]func(c *draft.Remote){
		"socket":     func(c *draft.Remote) { c.Socket = "" },
		"timeout_ms": func(c *draft.Remote) { c.TimeoutMs = 0 },
		"retry_ms":   func(c *draft.Remote) { c.RetryMs = -1 },
	} {
		c := good
		spoil(&c)
		require.ErrorContains(t, c.Validate(), key)
		_, err := c.Provision(draft.Env{})
		require.ErrorContains(t, err, "draft remote: "+key)
	}
}

// The worked example in Python keeps the contract of a strategy, and drafts.
func TestRemoteExampleInPython(t *testing.T) {
	python := os.Getenv("EXACTA_PYTHON")
	if python == "" {
		t.Skip("EXACTA_PYTHON names no Python with grpcio and grpcio-tools")
	}
	if out, err := exec.CommandContext(t.Context(), python, "-c", "import grpc, grpc_tools").CombinedOutput(); err != nil {
		t.Skipf("%s has no grpcio and grpcio-tools: %s", python, out)
	}
	dir, err := os.MkdirTemp("", "x")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	cmd := exec.CommandContext(t.Context(), python, "remote/example/ngram_drafter.py", socket)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "listening on "+socket+"\n", line)

	var warned []string
	strategytest.Run(t, func() draft.Strategy {
		return &warning{Remote: draft.Remote{Socket: socket, TimeoutMs: 5000}, warned: &warned}
	})
	require.Empty(t, warned)
}

// warning is the strategy, with an ear for its warnings.
type warning struct {
	draft.Remote
	warned *[]string
}

func (w *warning) Provision(env draft.Env) (engine.Drafter, error) {
	env.Warn = func(s string) { *w.warned = append(*w.warned, s) }
	return w.Remote.Provision(env)
}
