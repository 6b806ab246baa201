//go:build linux && (amd64 || arm64) && !nogpu

package driver

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Compiler is the opened NVRTC library. Its methods may be called from several
// goroutines at once.
type Compiler struct {
	lib          *library
	Major, Minor int // version of NVRTC

	// nvrtcResult nvrtcVersion(int *major, int *minor)
	nvrtcVersion func(*int32, *int32) int32
	// nvrtcResult nvrtcCreateProgram(nvrtcProgram *prog, const char *src, const char *name,
	//   int numHeaders, const char *const *headers, const char *const *includeNames)
	nvrtcCreateProgram func(*uintptr, string, string, int32, uintptr, uintptr) int32
	// nvrtcResult nvrtcCompileProgram(nvrtcProgram prog, int numOptions, const char *const *options)
	nvrtcCompileProgram func(uintptr, int32, unsafe.Pointer) int32
	// nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram prog, size_t *logSizeRet)
	nvrtcGetProgramLogSize func(uintptr, *uint64) int32
	// nvrtcResult nvrtcGetProgramLog(nvrtcProgram prog, char *log)
	nvrtcGetProgramLog func(uintptr, *byte) int32
	// nvrtcResult nvrtcGetCUBINSize(nvrtcProgram prog, size_t *cubinSizeRet)
	nvrtcGetCUBINSize func(uintptr, *uint64) int32
	// nvrtcResult nvrtcGetCUBIN(nvrtcProgram prog, char *cubin)
	nvrtcGetCUBIN func(uintptr, *byte) int32
	// nvrtcResult nvrtcDestroyProgram(nvrtcProgram *prog)
	nvrtcDestroyProgram func(*uintptr) int32
	// const char *nvrtcGetErrorString(nvrtcResult result)
	nvrtcGetErrorString func(int32) string
}

// CompilerEnv is the environment variable that points at NVRTC: the library
// itself or the folder that holds it.
const CompilerEnv = "EXACTA_NVRTC"

// OpenCompiler loads NVRTC: from where EXACTA_NVRTC says, else by the loader's
// own search, else from the usual folders of a CUDA toolkit and of Python's
// nvidia-cuda-nvrtc wheel. The error lists what was tried.
func OpenCompiler() (*Compiler, error) {
	names := compilerNames()
	lib, err := openLibrary("NVRTC (libnvrtc.so.13 or .12; set "+CompilerEnv+" to its path)", names)
	if err != nil {
		return nil, err
	}
	c := &Compiler{lib: lib}
	lib.bind(&c.nvrtcVersion, "nvrtcVersion")
	lib.bind(&c.nvrtcCreateProgram, "nvrtcCreateProgram")
	lib.bind(&c.nvrtcCompileProgram, "nvrtcCompileProgram")
	lib.bind(&c.nvrtcGetProgramLogSize, "nvrtcGetProgramLogSize")
	lib.bind(&c.nvrtcGetProgramLog, "nvrtcGetProgramLog")
	lib.bind(&c.nvrtcGetCUBINSize, "nvrtcGetCUBINSize")
	lib.bind(&c.nvrtcGetCUBIN, "nvrtcGetCUBIN")
	lib.bind(&c.nvrtcDestroyProgram, "nvrtcDestroyProgram")
	lib.bind(&c.nvrtcGetErrorString, "nvrtcGetErrorString")
	if err := lib.complete("NVRTC 12 or later is needed"); err != nil {
		return nil, err
	}
	var major, minor int32
	if err := c.check(c.nvrtcVersion(&major, &minor), "nvrtcVersion", ""); err != nil {
		return nil, err
	}
	c.Major, c.Minor = int(major), int(minor)
	preloadBuiltins(lib.name, c.Major, c.Minor)
	return c, nil
}

// Path returns the name under which the library was opened.
func (c *Compiler) Path() string { return c.lib.name }

// sonames are the names of NVRTC, the newest first.
var sonames = []string{"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}

func compilerNames() []string {
	var names []string
	if p := os.Getenv(CompilerEnv); p != "" {
		if st, err := os.Stat(p); err == nil && st.IsDir() {
			for _, n := range sonames {
				names = append(names, filepath.Join(p, n))
			}
			return names
		}
		return []string{p}
	}
	names = append(names, sonames...)
	var dirs []string
	for _, v := range []string{"CUDA_HOME", "CUDA_PATH"} {
		if p := os.Getenv(v); p != "" {
			dirs = append(dirs, filepath.Join(p, "lib64"))
		}
	}
	dirs = append(dirs, "/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib")
	roots := []string{"/usr", "/usr/local"}
	if p := os.Getenv("VIRTUAL_ENV"); p != "" {
		roots = append([]string{p}, roots...)
	}
	if h, err := os.UserHomeDir(); err == nil {
		roots = append(roots, filepath.Join(h, ".local"))
	}
	for _, r := range roots {
		for _, site := range []string{"site-packages", "dist-packages"} {
			for _, wheel := range []string{"cu13", "cuda_nvrtc"} {
				found, err := filepath.Glob(filepath.Join(r, "lib/python3*", site, "nvidia", wheel, "lib"))
				if err == nil {
					dirs = append(dirs, found...)
				}
			}
		}
	}
	for _, d := range dirs {
		for _, n := range sonames {
			if p := filepath.Join(d, n); fileExists(p) {
				names = append(names, p)
			}
		}
	}
	return names
}

func fileExists(p string) bool {
	_, err := os.Stat(p)
	return err == nil
}

// preloadBuiltins opens NVRTC's second library from the folder of the first:
// NVRTC asks for it by bare name, which the loader does not find outside its
// own path unless it is open already. A failure shows in the first compile.
func preloadBuiltins(lib string, major, minor int) {
	if !strings.Contains(lib, "/") {
		return
	}
	p := filepath.Join(filepath.Dir(lib), fmt.Sprintf("libnvrtc-builtins.so.%d.%d", major, minor))
	if fileExists(p) {
		_, _ = purego.Dlopen(p, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	}
}

func (c *Compiler) check(r int32, call, what string) error {
	if r == 0 {
		return nil
	}
	if what != "" {
		call += "(" + what + ")"
	}
	return fmt.Errorf("%s: %s (code %d)", call, c.nvrtcGetErrorString(r), r)
}

// Compile compiles CUDA C++ to a cubin. name stands for the source in messages;
// options are NVRTC's, with --gpu-architecture=sm_NN among them. The error
// carries the compiler's log.
func (c *Compiler) Compile(name, source string, options []string) ([]byte, error) {
	var prog uintptr
	if err := c.check(c.nvrtcCreateProgram(&prog, source, name, 0, 0, 0), "nvrtcCreateProgram", name); err != nil {
		return nil, err
	}
	defer c.nvrtcDestroyProgram(&prog)
	ptrs := make([]*byte, len(options)+1)
	for i, o := range options {
		ptrs[i] = &append([]byte(o), 0)[0]
	}
	if r := c.nvrtcCompileProgram(prog, int32(len(options)), unsafe.Pointer(&ptrs[0])); r != 0 {
		return nil, fmt.Errorf("%w\n%s", c.check(r, "nvrtcCompileProgram", name+" "+strings.Join(options, " ")), c.log(prog))
	}
	var n uint64
	if err := c.check(c.nvrtcGetCUBINSize(prog, &n), "nvrtcGetCUBINSize", name); err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, fmt.Errorf("nvrtcGetCUBINSize(%s): no machine code; the architecture must be a real one (sm_NN)", name)
	}
	cubin := make([]byte, n)
	return cubin, c.check(c.nvrtcGetCUBIN(prog, &cubin[0]), "nvrtcGetCUBIN", name)
}

func (c *Compiler) log(prog uintptr) string {
	var n uint64
	if c.nvrtcGetProgramLogSize(prog, &n) != 0 || n == 0 {
		return "no log"
	}
	b := make([]byte, n)
	if c.nvrtcGetProgramLog(prog, &b[0]) != 0 {
		return "no log"
	}
	return strings.TrimRight(string(b), "\x00\n")
}
