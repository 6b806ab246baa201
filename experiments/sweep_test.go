package experiments

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const sweepBase = "name: s\nmax_new: 8\nstrategies:\n- {drafter: ngram, k: [2]}\n"

func expand(t *testing.T, text string) []SweepPoint {
	t.Helper()
	d, err := ParseDocument("s.yaml", []byte(text))
	require.NoError(t, err)
	points, err := d.Points(CheckConfig)
	require.NoError(t, err)
	return points
}

// settingsOf are the settings of all points.
func settingsOf(points []SweepPoint) (out []string) {
	for i := range points {
		out = append(out, points[i].String())
	}
	return out
}

func TestSweepPoints(t *testing.T) {
	for text, want := range map[string][]string{
		"": {"the whole file"},
		"sweep: {grid: {max_new: [4, 8], repeats: [1, 2]}}": {"max_new=4 repeats=1", "max_new=4 repeats=2", "max_new=8 repeats=1", "max_new=8 repeats=2"},
		"sweep: {zip: {max_new: [4, 8], repeats: [1, 2]}}":  {"max_new=4 repeats=1", "max_new=8 repeats=2"},
		"sweep: {grid: {\"strategies[0].k\": [[1], [2, 3]]}, zip: {engine.chunk: [16, 32]}}": {
			"strategies[0].k=[1] engine.chunk=16", "strategies[0].k=[1] engine.chunk=32", "strategies[0].k=[2,3] engine.chunk=16", "strategies[0].k=[2,3] engine.chunk=32",
		},
		"sweep: {grid: {max_new: [4, 8, 9]}, when: [{if: {max_new: [4, 9]}, skip: true}]}":                                                          {"max_new=8"},
		"sweep: {grid: {max_new: [4, 8]}, when: [{if: {max_new: 8}, grid: {repeats: [1, 2]}}]}":                                                     {"max_new=4", "max_new=8 repeats=1", "max_new=8 repeats=2"},
		"sweep: {grid: {max_new: [4, 8]}, when: [{if: {max_new: 8}, grid: {max_new: [9]}}]}":                                                        {"max_new=4", "max_new=9"},
		"sweep: {grid: {repeats: [1, 2]}, when: [{if: {name: s, \"strategies[0].k\": [2]}, grid: {max_new: [3]}}, {if: {repeats: 2}, skip: true}]}": {"repeats=1 max_new=3"},
		"sweep: {grid: {repeats: [1]}, when: [{if: {engine.chunk: 2}, skip: true}]}":                                                                {"repeats=1"},
		"small: {max_new: 1}\nsweep: {grid: {\"strategies[0]\": [{drafter: mtp, k: [1]}]}}":                                                         {`strategies[0]={"drafter":"mtp","k":[1]}`},
	} {
		require.Equal(t, want, settingsOf(expand(t, sweepBase+text)), text)
	}
	// What is set is what is run.
	points := expand(t, sweepBase+"sweep: {grid: {\"strategies[0].k\": [[5]], sampling.top_k: [3]}}")
	c, err := ParseConfig("point", points[0].text)
	require.NoError(t, err)
	require.Equal(t, []int{5}, c.Strategies[0].K)
	require.Equal(t, 3, c.Sampling.TopK)
	require.Equal(t, 8, c.MaxNew)
	// The order of keys and the layout don't matter to the hash; a value does.
	again := expand(t, "strategies:\n- k:\n  - 2\n  drafter: ngram\nmax_new: 9\nname: s\n# new\nsweep: {grid: {sampling.top_k: [3], \"strategies[0].k\": [[5]]}}")
	require.NotEqual(t, points[0].Hash, again[0].Hash)
	again = expand(t, "strategies:\n- k:\n  - 2\n  drafter: ngram\nmax_new: 8\nname: s\n# new\nsweep: {grid: {sampling.top_k: [3], \"strategies[0].k\": [[5]]}}")
	require.Equal(t, points[0].Hash, again[0].Hash)
}

// Each mistake is one line that names the file and the place.
func TestSweepMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"sweep: 3":                                         "s.yaml: sweep: want a mapping",
		"sweep: {grid: {max_new: 4}}":                      "s.yaml: sweep.grid.max_new: want a list of values",
		"sweep: {grid: []}":                                "s.yaml: sweep.grid: want a mapping",
		"sweep: {grad: {max_new: [4]}}":                    "s.yaml: sweep.grad: unknown key",
		"sweep: {zip: {max_new: [4, 5], repeats: [1]}}":    "s.yaml: sweep.zip.repeats: has 1 values, max_new has 2",
		"sweep: {grid: {max_new: [4, 4]}}":                 "points 0 and 1 are the same experiment",
		"sweep: {grid: {max_new: [0]}}":                    "s.yaml, point 0 (max_new=0):2: max_new: 0 is out of range",
		"sweep: {grid: {maxnew: [1]}}":                     "maxnew: unknown key",
		"sweep: {grid: {\"strategies[1].k\": [[1]]}}":      "s.yaml: sweep: strategies[1].k: there is no place 1 in the file's list of 1",
		"sweep: {grid: {\"strategies[0.k\": [1]}}":         "is not a key",
		"sweep: {grid: {\"a..b\": [1]}}":                   "is not a key",
		"sweep: {grid: {max_new.x: [1]}}":                  "max_new.x: 8 is not a mapping",
		"sweep: {when: [{grid: {max_new: [1]}}]}":          "s.yaml: sweep.when[0]: has no if",
		"sweep: {when: [{if: {max_new: 8}}]}":              "s.yaml: sweep.when[0]: want skip, or grid and zip",
		"sweep: {when: [{if: {max_new: 8}, skip: false}]}": "s.yaml: sweep.when[0].skip: is true, or left out",
		"sweep: {when: [{if: {max_new: 8}, skip: true}]}":  "every point is skipped",
		"sweep: {when: [{if: {max_new: 8}, when: []}]}":    "s.yaml: sweep.when[0].when: unknown key",
		"sweep: {grid: {max_new: [&a 4, *a]}}":             "anchors",
		"small: [1]":                                       "s.yaml: small: want a mapping",
		"sweep: {grid: {max_new: [" + strings.Repeat("1,", 200) + "2], repeats: [" + strings.Repeat("1,", 200) + "2]}}": "a sweep has at most 10000",
	} {
		d, err := ParseDocument("s.yaml", []byte(sweepBase+text))
		if err == nil {
			_, err = d.Points(CheckConfig)
		}
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), "\n")
		require.True(t, strings.HasPrefix(err.Error(), "s.yaml"), err.Error())
	}
}

// A file's own lines keep their numbers without its sections, and small sets keys.
func TestSmall(t *testing.T) {
	text := "name: s\nsmall:\n  max_new: 2\n  engine.chunk: 16\n  sweep: {grid: {repeats: [1]}}\nsweep: {grid: {repeats: [1, 2]}}\nmax_new: 0\nstrategies: [{drafter: ngram, k: [2]}]\n"
	d, err := ParseDocument("s.yaml", []byte(text))
	require.NoError(t, err)
	_, err = ParseConfig(d.Name(), d.Text())
	require.ErrorContains(t, err, "s.yaml:7: max_new: 0 is out of range")
	require.True(t, d.HasSweep())
	require.NoError(t, d.Small())
	c, err := ParseConfig(d.Name(), d.Text())
	require.NoError(t, err)
	require.Equal(t, 2, c.MaxNew)
	require.Equal(t, 16, c.Engine.Chunk)
	points, err := d.Points(CheckConfig)
	require.NoError(t, err)
	require.Len(t, points, 1)

	d, err = ParseDocument("s.yaml", []byte(sweepBase))
	require.NoError(t, err)
	require.ErrorContains(t, d.Small(), "s.yaml: has no small variant")
	require.Equal(t, sweepBase, string(d.Text()))
}

// A sweep reads back from its directory's file as the same points.
func FuzzSweep(f *testing.F) {
	f.Add([]byte(sweepBase + "sweep: {grid: {max_new: [4, 8]}, zip: {repeats: [1, 2]}, when: [{if: {max_new: 4}, grid: {engine.chunk: [1, 2]}}]}"))
	f.Add([]byte(sweepBase + "small: {max_new: 1, sweep: {grid: {\"strategies[0].k[0]\": [1]}}}"))
	f.Add([]byte("sweep: {grid: {a: [1.5, \"4\", yes, null, {b: 1}]}}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := ParseDocument("s.yaml", text)
		if err == nil && d.small != nil {
			err = d.Small()
		}
		anyForm := func(string, []byte) error { return nil }
		var points []SweepPoint
		if err == nil {
			points, err = d.Points(anyForm)
		}
		if err != nil {
			require.True(t, strings.HasPrefix(err.Error(), "s.yaml"), err)
			require.NotContains(t, err.Error(), "\n")
			return
		}
		whole, err := d.whole()
		require.NoError(t, err)
		back, err := ParseDocument("sweep.yaml", whole)
		if err != nil {
			return // larger or deeper than a file may be
		}
		again, err := back.Points(anyForm)
		require.NoError(t, err, "%s", whole)
		require.Equal(t, len(points), len(again))
		for i := range points {
			require.Equal(t, points[i].Hash, again[i].Hash, "%s", whole)
			require.Equal(t, points[i].Dir, again[i].Dir)
		}
	})
}

func TestDevices(t *testing.T) {
	d, err := parseDevices([]string{"cuda:1", "cpu:0-2,5"})
	require.NoError(t, err)
	require.Equal(t, []device{{name: "cuda:1", cuda: "1"}, {name: "cpu:0-2,5", cpus: []int{0, 1, 2, 5}}}, d)
	for _, bad := range []string{"", "gpu:0", "cuda", "cuda:x", "cpu:", "cpu:3-1", "cpu:1,,2", "cpu:-1"} {
		_, err := parseDevices([]string{bad})
		require.ErrorContains(t, err, "it is cuda:N, or cpu:LIST", bad)
	}
}
