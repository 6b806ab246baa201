package cpu

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// packedChild names the packed file that a process started by TestPackedShared maps.
const packedChild = "EXACTA_PACKED_CHILD"

const sharedRows, sharedCols = 2048, 1024

// mapShared loads a matrix of 4 MiB with a packed file, and reads all of it.
func mapShared(t *testing.T, path string) (sum int) {
	t.Helper()
	b, err := New(Options{Threads: 1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	require.NoError(t, b.UsePacked(path, "key"))
	raw := strings.Repeat("\x11\x3f", sharedRows*sharedCols)
	_, err = b.Load(kernels.Tensor{Name: "w", Use: kernels.Matrix, Parts: []kernels.Source{{Name: "w", Rows: sharedRows, Cols: sharedCols, DType: kernels.DTypeBF16, Data: strings.NewReader(raw)}}})
	require.NoError(t, err)
	_, err = b.FinishPacked()
	require.NoError(t, err)
	for _, c := range b.mem.chunks {
		for _, x := range c.mem {
			sum += int(x)
		}
	}
	return sum
}

// smaps gives the sizes in bytes of a process's mapping of a file.
func smaps(t *testing.T, pid int, path string) map[string]int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "smaps"))
	require.NoError(t, err)
	out, inside := map[string]int{}, false
	for line := range strings.SplitSeq(string(text), "\n") {
		fields := strings.Fields(line)
		switch {
		case len(fields) >= 5 && !strings.HasSuffix(fields[0], ":"):
			inside = fields[len(fields)-1] == path
		case inside && len(fields) == 3:
			kb, err := strconv.Atoi(fields[1])
			require.NoError(t, err)
			out[strings.TrimSuffix(fields[0], ":")] += kb << 10
		}
	}
	return out
}

// Two processes that map a packed file share its pages: half of each one is all that
// either has of it (Pss), and none is its own.
func TestPackedShared(t *testing.T) {
	if path := os.Getenv(packedChild); path != "" {
		t.Log(mapShared(t, path))
		_, _ = os.Stdout.WriteString("mapped\n")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		return
	}
	path := filepath.Join(t.TempDir(), "packed")
	mapShared(t, path) // leaves the file
	child := exec.Command(os.Args[0], "-test.run=^TestPackedShared$")
	child.Env = append(os.Environ(), packedChild+"="+path)
	in, err := child.StdinPipe()
	require.NoError(t, err)
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "mapped\n", line)
	mapShared(t, path)
	for _, pid := range []int{os.Getpid(), child.Process.Pid} {
		m := smaps(t, pid, path)
		require.GreaterOrEqual(t, m["Rss"], 2*sharedRows*sharedCols)
		require.InDelta(t, m["Rss"]/2, m["Pss"], float64(m["Rss"])/50, "%v", m)
		require.Zero(t, m["Private_Clean"]+m["Private_Dirty"]+m["Anonymous"], "%v", m)
		t.Logf("process %d: Rss %d, Pss %d", pid, m["Rss"], m["Pss"])
	}
	require.NoError(t, in.Close())
	require.NoError(t, child.Wait())
}
