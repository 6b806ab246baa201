package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/acceptance"
	"exacta.dev/exacta/engine/embedded"
)

// toy is a small model of random weights, with goldens, that other tests use.
const toy = "../../engine/model/testdata/qwen3"

// damaged is a copy of the toy model in which one file is changed.
func damaged(t *testing.T, name string, change func([]byte) []byte) string {
	t.Helper()
	dir := t.TempDir()
	for _, file := range []string{"config.json", "model.safetensors"} {
		text, err := os.ReadFile(filepath.Join(toy, file))
		require.NoError(t, err)
		if file == name {
			text = change(text)
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), text, 0o644))
	}
	return dir
}

// Models that are damaged, or that are not ours, are refused by name of what is
// wrong. The parsers have their own tests, and fuzz targets, in engine/checkpoint
// (TestHeaderRefuses, TestHeaderTruncations, TestConfigRefuses, FuzzHeader,
// FuzzIndex, FuzzConfig) and engine/tokenizer (TestLoadRefuses, FuzzLoad).
func TestBadModels(t *testing.T) {
	weights := func(change func([]byte) []byte) string { return damaged(t, "model.safetensors", change) }
	config := func(key string, value any) string {
		return damaged(t, "config.json", func(text []byte) []byte {
			v := decode(t, string(text))
			v[key] = value
			text, err := json.Marshal(v)
			require.NoError(t, err)
			return text
		})
	}
	score := func(dir string) []string { return []string{"score", "--model", dir, "--ids", "1,2"} }
	fine(t, score(weights(func(b []byte) []byte { return b }))...)

	for name, c := range map[string]struct{ dir, want string }{
		"cut in the data":      {weights(func(b []byte) []byte { return b[:len(b)-100] }), "model.safetensors"},
		"cut in the header":    {weights(func(b []byte) []byte { return b[:200] }), "model.safetensors"},
		"cut in the length":    {weights(func(b []byte) []byte { return b[:5] }), "model.safetensors"},
		"empty":                {weights(func([]byte) []byte { return nil }), "model.safetensors"},
		"longer than it says":  {weights(func(b []byte) []byte { return append(b, 0) }), "model.safetensors"},
		"header of 2^60 bytes": {weights(func(b []byte) []byte { binary.LittleEndian.PutUint64(b, 1<<60); return b }), "model.safetensors"},
		"offsets that lie":     {weights(lyingOffsets), "model.safetensors"},
		"a NaN":                {weights(withNaN), "is NaN; weights must be finite"},
		"unknown architecture": {config("model_type", "mamba9"), "mamba9"},
		"another width":        {config("hidden_size", 56), "model.embed_tokens.weight"},
		"another vocabulary":   {config("vocab_size", 77), "model.embed_tokens.weight"},
		"more layers":          {config("num_hidden_layers", 4), "layer_types is a list of 3"},
		"no heads":             {config("num_attention_heads", 0), "num_attention_heads"},
		"no object":            {damaged(t, "config.json", func([]byte) []byte { return []byte("[]") }), "config.json"},
		"no file":              {t.TempDir(), "config.json"},
	} {
		t.Run(name, func(t *testing.T) { bad(t, score(c.dir), c.want) })
	}
}

// lyingOffsets lets the first tensor of a header end one element early.
func lyingOffsets(b []byte) []byte {
	n := binary.LittleEndian.Uint64(b)
	head := string(b[8 : 8+n])
	at := strings.Index(head, `"data_offsets":[`) + len(`"data_offsets":[`)
	end := at + strings.IndexByte(head[at:], ']')
	pair := strings.Split(head[at:end], ",")
	// The same number of digits, so that nothing else moves.
	digit := len(pair[1]) - 1
	last := pair[1][:digit] + string('0'+(pair[1][digit]-'0'+2)%10)
	return append(append(b[:8:8], []byte(head[:at]+pair[0]+","+last+head[end:])...), b[8+n:]...)
}

// withNaN makes the last element of the file a NaN, of whatever type it is.
func withNaN(b []byte) []byte {
	b[len(b)-1], b[len(b)-2] = 0x7f, 0xff
	return b
}

// A tokenizer that knows ids which the model does not have is refused.
func TestTokenizerMismatch(t *testing.T) {
	dir := damaged(t, "", nil)
	fsys, err := embedded.FS()
	require.NoError(t, err)
	f, err := fsys.Open("tokenizer.json")
	require.NoError(t, err)
	text, err := io.ReadAll(f)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer.json"), text, 0o644))
	bad(t, []string{"generate", "--model", dir, "x"}, "tokenizer.json")

	require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer.json"), text[:1000], 0o644))
	bad(t, []string{"generate", "--model", dir, "x"}, "tokenizer.json")
	// Without one there is no text.
	bad(t, []string{"generate", "--model", toy, "x"}, "has no tokenizer")
	bad(t, []string{"generate", "--model", "random:nothing", "x"}, "nothing")
}

// Prompts of an experiment: empty, not UTF-8, too long. TestParsePrompts in
// experiments has the forms of the file.
func TestBadPrompts(t *testing.T) {
	for text, want := range map[string]string{
		`{"prompt": ""}`:           ":1: the prompt is empty",
		"{\"prompt\": \"a\xffb\"}": ":1: not valid UTF-8",
		`{"id": "long", "prompt": "` + strings.Repeat("func ", 5000) + `"}`: "prompt long has",
		"nonsense": ":1: ",
		"":         "no prompts",
	} {
		file := write(t, text)
		config := write(t, "prompts: {file: "+file+"}\nmax_new: 8\nstrategies: [{drafter: ngram, k: [1]}]\n")
		bad(t, []string{"run", config, "--dir", filepath.Join(t.TempDir(), "run")}, want)
	}
	dir := filepath.Join(t.TempDir(), "run")
	bad(t, []string{"run", write(t, tiny+"contxt: 9\n"), "--dir", dir}, "file.yaml:8: contxt: unknown key")
	bad(t, []string{"run", write(t, tiny+"context: 24\n"), "--dir", dir}, "the context of 24 leaves no room")
	require.NoDirExists(t, dir)
	bad(t, []string{"run", write(t, strings.Replace(tiny, "[2]", "[64]", 1)), "--dir", dir}, "file.yaml:5: strategies[0].k[0]: 64 is out of range 0..63")
}

// full makes a file of a run directory one on a disk that is full.
func full(t *testing.T, dir, name string) {
	t.Helper()
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("this system has no /dev/full")
	}
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.Symlink("/dev/full", filepath.Join(dir, name)))
}

// When the disk is full a run ends with one error that names the file; what was
// recorded before can be read. How a segment fails to be written is tested in
// acceptance (TestWriteFailures, TestDiskFull, TestDiskFullTmpfs).
func TestDiskFull(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	full(t, dir, "records-000002.parquet.tmp")
	config := strings.NewReplacer("max_new: 8", "max_new: 2000\nignore_eos: true").Replace(tiny)
	begun := time.Now()
	bad(t, []string{"run", write(t, config), "--dir", dir}, "write "+filepath.Join(dir, "records-000002.parquet")+" (")
	require.Less(t, time.Since(begun), 30*time.Second)
	require.FileExists(t, filepath.Join(dir, "records-000001.parquet"))
	require.NotEmpty(t, object(t, "stats", dir)["points"])
	require.NoFileExists(t, filepath.Join(dir, "summary.json"))

	for _, name := range []string{"prompts.jsonl", "outputs.jsonl", "records-000001.parquet.tmp", "summary.json"} {
		dir := filepath.Join(t.TempDir(), "run")
		full(t, dir, name)
		code, _, errs := exacta(t, "run", write(t, tiny), "--dir", dir)
		require.Equal(t, exitBad, code, name)
		require.Contains(t, errs, strings.TrimSuffix(name, ".tmp"))
		require.Equal(t, 1, strings.Count(errs, "no space left on device"), errs)
		require.Equal(t, 1, strings.Count(errs, "\n"), errs)
	}
}

// Each command that works for long stops when it is told to: exit code 130.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	done, _ := tinyRun()
	dir := filepath.Join(t.TempDir(), "run")
	for _, args := range [][]string{
		{"run", write(t, tiny), "--dir", dir},
		{"generate", "x"},
		{"score", "--ids", "1,2", "--continue", "100"},
		{"audit", done},
		{"bench", "decode"},
		{"bench", "oracle", "--tokens", "10"},
	} {
		var out, errs strings.Builder
		require.Equal(t, exitInterrupted, run(ctx, args, &out, &errs), "%v: %s", args, &errs)
		require.Contains(t, errs.String(), "exacta: interrupted")
		require.Equal(t, 1, strings.Count(errs.String(), "\n"), errs.String())
	}
}

// Ctrl-C in mid-run: exit code 130, the records are kept and the summary says so.
func TestInterrupt(t *testing.T) {
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		dir := filepath.Join(t.TempDir(), "run")
		config := write(t, strings.Replace(tiny, "max_new: 8", "max_new: 3000\nignore_eos: true", 1))
		self, err := os.Executable()
		require.NoError(t, err)
		cmd := exec.Command(self, "run", config, "--dir", dir, "--json")
		var out, errs strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &errs
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill() }) // where the test failed before it ended
		segment := filepath.Join(dir, "records-000001.parquet")
		for begun := time.Now(); ; time.Sleep(5 * time.Millisecond) {
			if _, err := os.Stat(segment); err == nil {
				break
			}
			require.Less(t, time.Since(begun), 30*time.Second, "no records: %s", &errs)
		}
		require.NoError(t, cmd.Process.Signal(sig))
		var exit *exec.ExitError
		require.ErrorAs(t, cmd.Wait(), &exit)
		require.Equal(t, exitInterrupted, exit.ExitCode(), errs.String())

		require.Regexp(t, `^exacta: interrupted during reference-0; records of \d+ steps are in `+dir+"\n$", errs.String())
		require.Equal(t, true, decode(t, out.String())["interrupted"])
		text, err := os.ReadFile(filepath.Join(dir, "summary.json"))
		require.NoError(t, err)
		require.Equal(t, true, decode(t, string(text))["interrupted"])
		reader, err := acceptance.Open(dir)
		require.NoError(t, err)
		records := 0
		for _, err := range reader.All() {
			require.NoError(t, err)
			records++
		}
		// All steps are there, not only those of the segments before.
		require.Contains(t, errs.String(), "records of "+strconv.Itoa(records)+" steps")
		require.NotEmpty(t, object(t, "stats", dir)["points"])
	}
}
