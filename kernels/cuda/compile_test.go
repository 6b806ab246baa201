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
		for _, f := range sourcesFor(arch) {
			t.Run(fmt.Sprintf("sm_%d/%s", arch, f), func(t *testing.T) {
				t.Parallel()
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

// TestCubinsAreCached compiles once and then does without NVRTC.
func TestCubinsAreCached(t *testing.T) {
	if _, err := driver.OpenCompiler(); err != nil {
		t.Skipf("kernels not compiled: %v", err)
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	fresh, err := cubins(90)
	require.NoError(t, err)
	require.Len(t, fresh, len(sourcesFor(90)))
	t.Setenv(driver.CompilerEnv, "/nowhere/libnvrtc.so")
	cached, err := cubins(90)
	require.NoError(t, err)
	require.Equal(t, fresh, cached)
	_, err = cubins(80)
	require.ErrorContains(t, err, "/nowhere/libnvrtc.so")
	require.ErrorContains(t, err, driver.CompilerEnv)
}

// TestCompileErrors checks that an error carries the compiler's words.
func TestCompileErrors(t *testing.T) {
	nvrtc, err := driver.OpenCompiler()
	if err != nil {
		t.Skipf("kernels not compiled: %v", err)
	}
	_, err = nvrtc.Compile("bad.cu", "__global__ void f() { nothing(); }", []string{"--gpu-architecture=sm_90"})
	require.ErrorContains(t, err, "nvrtcCompileProgram(bad.cu")
	require.ErrorContains(t, err, `identifier "nothing" is undefined`)
	_, err = nvrtc.Compile("rows.cu", "int x;", []string{"--gpu-architecture=sm_1"})
	require.ErrorContains(t, err, "sm_1")
}
