package metamorphic_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/internal/metamorphic"
)

// goldens are the tiny models that engine/model compares with transformers: here
// only their shapes serve, with random weights and a longer context.
const goldens = "../../engine/model/testdata"

// shapeOf returns a family's tiny shape, with an MTP module if the family has one.
func shapeOf(t *testing.T, name string) model.Random {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(goldens, name, "config.json"))
	require.NoError(t, err)
	c, err := checkpoint.ParseConfig(text)
	require.NoError(t, err)
	c.MaxPositions, c.MTPLayers = 1024, 1
	return model.Random{ShapeName: name, Shape: c, Seed: 5}
}

// TestFamilies runs programs over every family's tiny shape, one for each hundred of
// TestPrograms.
func TestFamilies(t *testing.T) {
	dirs, err := filepath.Glob(filepath.Join(goldens, "*", "config.json"))
	require.NoError(t, err)
	require.NotEmpty(t, dirs)
	n := max(1, *programs/100)
	for _, dir := range dirs {
		name := filepath.Base(filepath.Dir(dir))
		if strings.HasSuffix(name, "_published") { // a family that is there already, in other storage
			continue
		}
		t.Run(name, func(t *testing.T) {
			src := shapeOf(t, name)
			s := metamorphic.NewSuite(src, kernelSets())
			defer func() { require.NoError(t, s.Close()) }()
			for i := range n {
				p := metamorphic.NewProgram(*first+uint64(1000+i), src.Shape.VocabSize, kernelSets())
				own := "mtp"
				if model.HasDSpark(src) {
					own = "dspark"
				}
				p.Requests[0].Drafter, p.Requests[0].K = []string{own, "ngram"}[i%2], 1+i%5
				if !model.HasMTP(src) {
					p.Without("mtp", "mtp-tree")
				}
				require.NoError(t, s.Run(p), "%s", p)
			}
			t.Logf("coverage: %+v", s.Coverage)
			require.Positive(t, s.Coverage.Rejections)
		})
	}
}
