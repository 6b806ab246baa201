//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels/cuda/driver"
)

// TestSourcesCompile compiles every source for every architecture that it is
// for, on any machine that has NVRTC.
func TestSourcesCompile(t *testing.T) {
	nvrtc, err := driver.OpenCompiler()
	if err != nil {
		t.Skipf("kernels not compiled: %v", err)
	}
	t.Logf("NVRTC %d.%d from %s", nvrtc.Major, nvrtc.Minor, nvrtc.Path())
	for _, arch := range architectures {
		for _, f := range sourceFiles {
			t.Run(fmt.Sprintf("sm_%d/%s", arch, f), func(t *testing.T) {
				text, err := source(f)
				require.NoError(t, err)
				bin, err := nvrtc.Compile(f+".cu", text, compileOptions(arch))
				require.NoError(t, err)
				require.Greater(t, len(bin), 1000)
				require.Equal(t, "\x7fELF", string(bin[:4]))
				for _, k := range kernelTable {
					if k.file == f {
						require.Contains(t, string(bin), k.name)
					}
				}
			})
		}
	}
}
