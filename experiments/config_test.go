package experiments

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/draft"
)

// Every experiment that comes with the project can be read.
func TestExperimentsParse(t *testing.T) {
	files, err := filepath.Glob("*.yaml")
	require.NoError(t, err)
	require.Contains(t, files, "quickstart.yaml")
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		d, err := ParseDocument(f, text)
		require.NoError(t, err)
		require.NoError(t, CheckConfig(f, d.Text()))
		require.NoError(t, d.Small())
		require.NoError(t, CheckConfig(f, d.Text()))
		require.True(t, strings.HasPrefix(string(text), "# "), "%s does not say what it is", f)
	}
	d, err := ParseDocument("quickstart.yaml", QuickstartText())
	require.NoError(t, err)
	q, err := ParseConfig("quickstart.yaml", d.Text())
	require.NoError(t, err)
	require.Equal(t, "quickstart", q.Name)
}

// Strict YAML: the error is one line that names the file, the line and the key.
func TestConfigRefuses(t *testing.T) {
	const rest = "\nstrategies:\n- drafter: ngram\n  k: [2]\n"
	settings := func(s string) string {
		return "strategies:\n- drafter: ngram\n  k: [2]\n  config:\n    max_match: 3\n    " + s
	}
	for text, want := range map[string]string{
		// Not an experiment.
		"":                        "x.yaml: 0 YAML documents; it must hold one experiment",
		"# nothing":               "x.yaml: 0 YAML documents; it must hold one experiment",
		"name: a\n---\nname: b":   "x.yaml: 2 YAML documents; it must hold one experiment",
		"- a":                     "x.yaml:1: want a mapping, not a list",
		"hello":                   "x.yaml:1: want a mapping, not hello",
		"name: a\nstrategies: [":  "x.yaml:2: sequence end token ']' not found",
		"name: a\n\tmax_new: 3":   "x.yaml:2: ",
		strings.Repeat("[", 5000): "x.yaml:1: nested more than 32 deep",
		"name:\n" + strings.Repeat("- ", 33) + "a":        "x.yaml:2: nested more than 32 deep",
		"a:\n" + strings.Repeat(" ? - ", 17) + "a":        "x.yaml:2: nested more than 32 deep",
		"# " + strings.Repeat("long ", 1<<14):             "x.yaml: 81922 bytes; a configuration has at most 65536",
		"name: a\nname: b" + rest:                         `x.yaml:2: mapping key "name" already defined`,
		"concurrency: &a [*a]" + rest:                     "x.yaml:1: concurrency: anchors, aliases and tags are not taken here",
		"sampling: {seed: &a 1, top_k: *a}" + rest:        "x.yaml:1: sampling.seed: anchors",
		"max_new: !!int 3" + rest:                         "x.yaml:1: max_new: anchors",
		"name: a\nstrategies: [{drafter: ngram, k: [*a]}": "x.yaml:2: ",

		// Unknown keys.
		"nmae: a" + rest:                                               "x.yaml:1: nmae: unknown key",
		"prompts:\n  limits: 3" + rest:                                 "x.yaml:2: prompts.limits: unknown key",
		"name: a" + rest + "  knob: 3":                                 "x.yaml:5: strategies[0].knob: unknown key",
		"sampling: {temprature: 1}" + rest:                             "x.yaml:1: sampling.temprature: unknown key",
		`"a\nb": 1` + rest:                                             "x.yaml:1: a b: unknown key",
		"engine: {prefixcache: true}" + rest:                           "x.yaml:1: engine.prefixcache: unknown key",
		settings("mi_match: 1"):                                        "x.yaml:6: strategies[0].config.mi_match: unknown key",
		"strategies: [{drafter: mtp, k: [1], config: {min_match: 1}}]": "x.yaml:1: strategies[0].config.min_match: unknown key",

		// Wrong types.
		"max_new: many" + rest:                              "x.yaml:1: max_new: want a whole number, not many",
		"name: a\nmax_new: 1.5" + rest:                      "x.yaml:2: max_new: want a whole number, not 1.5",
		"max_new: '4'" + rest:                               "x.yaml:1: max_new: want a whole number, not '4'",
		"max_new:" + rest:                                   "x.yaml:1: max_new: want a whole number, not nothing",
		"max_new: [4]" + rest:                               "x.yaml:1: max_new: want a whole number, not a list",
		"max_new: 99999999999999999999" + rest:              "x.yaml:1: max_new: ",
		"name: 12" + rest:                                   "x.yaml:1: name: want text, not 12",
		"name: {a: b}" + rest:                               "x.yaml:1: name: want text, not a mapping",
		"ignore_eos: 1" + rest:                              "x.yaml:1: ignore_eos: want true or false, not 1",
		"ignore_eos: yes" + rest:                            "x.yaml:1: ignore_eos: want true or false, not yes",
		"sampling: {top_p: '1'}" + rest:                     "x.yaml:1: sampling.top_p: want a number, not '1'",
		"sampling: {seed: -1}" + rest:                       "x.yaml:1: sampling.seed: ",
		"sampling: 3" + rest:                                "x.yaml:1: sampling: want a mapping, not 3",
		"concurrency: 4" + rest:                             "x.yaml:1: concurrency: want a list, not 4",
		"concurrency: [1, a]" + rest:                        "x.yaml:1: concurrency[1]: want a whole number, not a",
		"strategies: ngram":                                 "x.yaml:1: strategies: want a list, not ngram",
		"name: a\nstrategies:\n- drafter: ngram\n  k: 2":    "x.yaml:4: strategies[0].k: want a list, not 2",
		settings("min_match: x"):                            "x.yaml:6: strategies[0].config.min_match: want a whole number, not x",
		settings("min_match: 1.5"):                          "x.yaml:6: strategies[0].config.min_match: want a whole number, not 1.5",
		"strategies: [{drafter: ngram, k: [1], config: 3}]": "x.yaml:1: strategies[0].config: want a mapping, not 3",

		// Out of range.
		"name: a/b" + rest:                                    `x.yaml:1: name: "a/b" is not a name for a directory`,
		"model: ''" + rest:                                    "x.yaml:1: model: is empty",
		"backend: abacus" + rest:                              `x.yaml:1: backend: "abacus" is not known; use one of [cpu ref cuda fakedev]`,
		"threads: -1" + rest:                                  "x.yaml:1: threads: -1 is out of range 0..1024",
		"context: -1" + rest:                                  "x.yaml:1: context: -1 is out of range",
		"max_new: 0" + rest:                                   "x.yaml:1: max_new: 0 is out of range 1..1048576",
		"repeats: 0" + rest:                                   "x.yaml:1: repeats: 0 is out of range 1..1000",
		"prompts:\n  limit: -1" + rest:                        "x.yaml:2: prompts.limit: -1 is out of range",
		"prompts: {chat: true, max_tokens: 5}" + rest:         "x.yaml:1: prompts.max_tokens: would cut the beginning that the chat template makes; leave it out with chat",
		"prompts: {chat: true, kind: random}" + rest:          "x.yaml:1: prompts.chat: is for prompts of kind text, not random",
		"prompts:\n  max_tokens: 9999999" + rest:              "x.yaml:2: prompts.max_tokens: 9999999 is out of range",
		"engine:\n  pages: -1" + rest:                         "x.yaml:2: engine.pages: -1 is out of range",
		"engine:\n  batch_tokens: -1" + rest:                  "x.yaml:2: engine.batch_tokens: -1 is out of range",
		"engine:\n  chunk: -1" + rest:                         "x.yaml:2: engine.chunk: -1 is out of range",
		"engine:\n  policy: lifo" + rest:                      "x.yaml:2: engine.policy: \"lifo\" is not known; use one of [fcfs shortest-prefill session]",
		"engine:\n  prefill_share: 101" + rest:                "x.yaml:2: engine.prefill_share: 101 is out of range 0..100",
		"engine:\n  expected_output: -2" + rest:               "x.yaml:2: engine.expected_output: -2 is out of range -1..1048576",
		"sampling: {temperature: .nan}" + rest:                "x.yaml:1: sampling: temperature NaN is out of range",
		"sampling: {top_p: 2}" + rest:                         "x.yaml:1: sampling: top_p 2",
		"sampling: {temperature: 1}" + rest:                   "x.yaml: rule: rule greedy serves temperature 0, not 1",
		"rule: hope" + rest:                                   `x.yaml:1: rule: unknown rule "hope"; known rules: block, coupled, greedy, rejection`,
		"concurrency: []" + rest:                              "x.yaml:1: concurrency: is empty",
		"concurrency: [1, 0]" + rest:                          "x.yaml:1: concurrency[1]: 0 is out of range 1..4096",
		"concurrency: [2, 2]" + rest:                          "x.yaml:1: concurrency[1]: 2 is there twice",
		"name: a":                                             "x.yaml: strategies: is empty",
		"strategies: []":                                      "x.yaml:1: strategies: is empty",
		"strategies: [null]":                                  `x.yaml:1: strategies[0].drafter: unknown drafter ""`,
		"strategies:\n- drafter: psychic\n  k: [1]":           `x.yaml:2: strategies[0].drafter: unknown drafter "psychic"; known drafters: `,
		"strategies:\n- drafter: mtp":                         "x.yaml:2: strategies[0].k: is empty",
		"strategies:\n- {drafter: mtp, k: [1, 64]}":           "x.yaml:2: strategies[0].k[1]: 64 is out of range 0..63",
		"strategies:\n- {drafter: mtp, k: [1, 1]}":            "x.yaml:2: strategies[0].k[1]: 1 is there twice",
		"strategies:\n- drafter: mtp\n  k: [1]\n  rule: hope": `x.yaml:4: strategies[0].rule: unknown rule "hope"`,
		"rule: coupled\nsampling: {temperature: 1}\nstrategies:\n- drafter: mtp\n  k: [1]\n  rule: greedy": "x.yaml:6: strategies[0].rule: rule greedy serves temperature 0",
		"strategies:\n- {drafter: mtp, k: [1, 3], simulate: {length: 2.5}}":                                "x.yaml:2: strategies[0].simulate.length: 2.5 is out of range 1..2 (k+1 with k = 1",
		"strategies:\n- drafter: mtp\n  k: [3]\n  simulate:\n    length: .nan":                             "x.yaml:5: strategies[0].simulate.length: NaN is out of range 1..4",
		"strategies:\n- drafter: mtp\n  k: [3]\n  simulate:\n    length: 0":                                "x.yaml:5: strategies[0].simulate.length: 0 is out of range 1..4",
		"strategies:\n- drafter: mtp\n  k: [3]\n  simulate:\n    length: two":                              "x.yaml:5: strategies[0].simulate.length: want a number, not two",
		"strategies:\n- drafter: mtp\n  k: [3]\n  simulate:\n    rates:\n    - .5\n    - .6":               "x.yaml:7: strategies[0].simulate.rates[1]: 0.6 is above 0.5 before it",
		"strategies:\n- drafter: mtp\n  k: [2]\n  simulate: {rates: [1, .5, .2]}":                          "x.yaml:4: strategies[0].simulate.rates[2]: 0.2 is of draft 3, and a step has 2",
		"strategies:\n- drafter: mtp\n  k: [2]\n  simulate: {rates: []}":                                   "x.yaml:4: strategies[0].simulate.rates: is empty",
		"strategies:\n- drafter: mtp\n  k: [2]\n  simulate: {rates: .5}":                                   "x.yaml:4: strategies[0].simulate.rates: want a list, not .5",
		"strategies:\n- drafter: mtp\n  k: [2]\n  simulate: {rates: [1], length: 2}":                       "x.yaml:4: strategies[0].simulate: has length and rates; give one of them",
		"strategies:\n- drafter: mtp\n  k: [2]\n  simulate: {}":                                            "x.yaml:4: strategies[0].simulate: is empty; give length or rates",
		"strategies:\n- drafter: mtp\n  k: [2]\n  simulate:":                                               "x.yaml:4: strategies[0].simulate: want a mapping, not nothing",
		"strategies:\n- drafter: mtp\n  k: [2]\n  simulate: {length: null}":                                "x.yaml:4: strategies[0].simulate.length: want a number, not ",
		"strategies:\n- drafter: mtp\n  k: [2]\n  simulate: 2.6":                                           "x.yaml:4: strategies[0].simulate: want a mapping, not 2.6",
		"strategies:\n- drafter: mtp\n  k: [2]\n  simulate: {acc_len: 2}":                                  "x.yaml:4: strategies[0].simulate.acc_len: unknown key",
		"strategies:\n- drafter: none\n  simulate: {length: 1}":                                            "x.yaml:3: strategies[0].simulate: drafter none has no drafts",
		"sampling: {grammar: 'a(b'}" + rest:                                                                `x.yaml:1: sampling.grammar: grammar "a(b", column 3: missing closing )`,
		"sampling:\n  top_k: 3\n  grammar: '[0-9'" + rest:                                                  "x.yaml:3: sampling.grammar: grammar \"[0-9\", column 1: missing closing ]",
		"sampling: {grammar: 3}" + rest:                                                                    "x.yaml:1: sampling.grammar: want text, not 3",
		"sampling: {logit_bias: {7: 101}}" + rest:                                                          `x.yaml:1: sampling.logit_bias: logit_bias of token 7 is "101"`,
		"sampling: {logit_bias: {-7: 1}}" + rest:                                                           "x.yaml:1: sampling.logit_bias: ",
		"sampling: {logit_bias: {7: a}}" + rest:                                                            "x.yaml:1: sampling.logit_bias.7: want a number, not a",
		"sampling: {logit_bias: {a: 1}}" + rest:                                                            "x.yaml:1: sampling.logit_bias",
		"sampling: {logit_bias: [7]}" + rest:                                                               "x.yaml:1: sampling.logit_bias: want a mapping, not a list",
		"sampling: {grammar: a*}\nstrategies: [{drafter: mtp, k: [1], simulate: {length: 1}}]":             "x.yaml:2: strategies[0].simulate: a simulation accepts drafts that sampling.grammar forbids",
		settings("min_match: 0"):                                                                           "x.yaml:5: strategies[0].config: drafter ngram: min_match 0 and max_match 3; want",
	} {
		_, err := ParseConfig("x.yaml", []byte(text))
		require.ErrorContains(t, err, want, "%.200q", text)
		require.True(t, strings.HasPrefix(err.Error(), want), "%v", err)
		require.NotContains(t, err.Error(), "\n", "%.200q", text)
	}
	_, err := LoadConfig("/no/such.yaml")
	require.ErrorContains(t, err, "/no/such.yaml")
}

func TestConfigTakes(t *testing.T) {
	c, err := ParseConfig("x.yaml", []byte(`
name: a
model: random:toy
ignore_eos: true
sampling: {temperature: 1, top_p: 0.9, seed: 18446744073709551615}
rule: coupled
prompts:
concurrency: [1, 4]
strategies:
- {drafter: none}
- {drafter: none, rule: rejection}
- {drafter: ngram, k: [0, 63], config: {min_match: 1}}
`))
	require.NoError(t, err)
	require.True(t, c.IgnoreEOS)
	require.Equal(t, Sampling{Temperature: 1, TopP: 0.9, RepetitionPenalty: 1, Seed: 1<<64 - 1}, c.Sampling)
	require.Equal(t, Default().MaxNew, c.MaxNew)
	var names []string
	for _, p := range c.points() {
		names = append(names, p.String())
	}
	require.Equal(t, []string{
		"plain.coupled.c1", "1-none.k0.rejection.c1", "2-ngram.k0.coupled.c1", "2-ngram.k63.coupled.c1",
		"plain.coupled.c4", "1-none.k0.rejection.c4", "2-ngram.k0.coupled.c4", "2-ngram.k63.coupled.c4",
	}, names)
	d, err := c.Strategies[2].New()
	require.NoError(t, err)
	require.Equal(t, &draft.NGram{MinMatch: 1, MaxMatch: 4, Branches: 1}, d)
}

// Whatever the text is, ParseConfig takes it or says on one line what is wrong.
func FuzzParseConfig(f *testing.F) {
	f.Add(quickstart)
	all := Default()
	all.Strategies = []Strategy{{Drafter: "ngram", K: []int{1, 2}, Config: map[string]any{"max_match": 3}}}
	text, err := yaml.Marshal(all) // every key
	require.NoError(f, err)
	f.Add(text)
	f.Add([]byte("strategies:\n- drafter: ngram\n  k: [2]\n  config: {min_match: 1}\n"))
	f.Add([]byte("strategies:\n- drafter: mtp\n  k: [3]\n  simulate: {rates: [.9, 5e-1]}\n- {drafter: mtp, k: [3], simulate: {length: 2.6}}\n"))
	f.Add([]byte("sampling: {grammar: '[a-c]+', logit_bias: {7: -1.5, 3: 2}}\nstrategies: [{drafter: none}]\n"))
	f.Add([]byte("strategies: [{drafter: none, rule: coupled}]\nsampling: {temperature: .5, seed: 0x1f}\n"))
	f.Add([]byte("a: &a [*a]\n<<: *a\n"))
	f.Add([]byte("? - ? {a: [}\n--- !!map\n%YAML 1.2\n|-\n >+"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := ParseConfig("x.yaml", text)
		if err != nil {
			require.True(t, strings.HasPrefix(err.Error(), "x.yaml:"), err)
			require.NotContains(t, err.Error(), "\n")
			return
		}
		require.NoError(t, c.Validate())
		require.NotEmpty(t, c.points())
		// What a run directory keeps is the same configuration.
		again, err := yaml.Marshal(c)
		require.NoError(t, err)
		back, err := ParseConfig("config.yaml", again)
		require.NoError(t, err, "%s", again)
		require.Equal(t, c.points(), back.points())
	})
}

// The configuration that a run writes reads back, whatever it asks for.
func TestConfigReadsBack(t *testing.T) {
	c := Default()
	length := 2.5
	c.Strategies = []Strategy{
		{Drafter: "mtp", K: []int{4}, Length: draft.Length{Auto: true}},
		{Drafter: "mtp", K: []int{4}, Length: draft.Length{ByBatch: [][]int{{1, 4}, {2, 1}}}},
		{Drafter: "mtp", K: []int{4}, Simulate: &Simulate{Length: &length}},
	}
	require.NoError(t, c.Validate())
	text, err := yaml.Marshal(c)
	require.NoError(t, err)
	back, err := ParseConfig("config.yaml", text)
	require.NoError(t, err)
	require.Equal(t, configHash(c), configHash(back))
}
