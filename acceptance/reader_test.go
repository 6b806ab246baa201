package acceptance

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"
)

// put makes a directory of the given segments.
func put(t testing.TB, files ...[]byte) string {
	dir := t.TempDir()
	for i, f := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, segmentName(i+1)), f, 0o644))
	}
	return dir
}

// problem is the error of reading a directory to its end, without its path.
func problem(t testing.TB, dir string) string {
	r, err := Open(dir)
	if err == nil {
		for _, err = range r.All() {
			if err != nil {
				break
			}
		}
	}
	if err == nil {
		return ""
	}
	return string(bytes.ReplaceAll([]byte(err.Error()), []byte(dir), []byte("DIR")))
}

func segment(t testing.TB, run string, change func(*row)) []byte {
	var rows []row
	for _, r := range fakeRun(1, 1, 2, 6) {
		rows = append(rows, toRow(run, r))
	}
	if change != nil {
		change(&rows[7])
	}
	content, err := encode(Meta{Run: run}, rows)
	require.NoError(t, err)
	return content
}

func TestRefusals(t *testing.T) {
	good := segment(t, "x", nil)
	require.Empty(t, problem(t, put(t, good)))
	type fewer struct {
		Run     string `parquet:"run"`
		Request string `parquet:"request"`
	}
	type retyped struct {
		Run      string `parquet:"run"`
		Request  string `parquet:"request"`
		Sequence int32  `parquet:"sequence"`
	}
	type more struct {
		row
		Luck int32 `parquet:"luck"`
	}
	sealed := func(content []byte, err error) []byte {
		require.NoError(t, err)
		return content
	}
	foreign := func(options ...parquet.WriterOption) []byte {
		var out bytes.Buffer
		w := parquet.NewGenericWriter[row](&out, options...)
		require.NoError(t, w.Close())
		if bytes.Contains(out.Bytes(), []byte(keyChecksum)) {
			require.NoError(t, seal(out.Bytes()))
		}
		return out.Bytes()
	}
	for _, c := range []struct {
		files [][]byte
		want  string
	}{
		{[][]byte{good, segment(t, "y", nil)}, `records: DIR/records-000002.parquet is of run "y", DIR/records-000001.parquet of run "x"; a directory holds one run`},
		{[][]byte{good, sealed(encode(Meta{Run: "x", Provenance: map[string]string{"started": "later"}}, []row{{Run: "x"}}))}, "records: DIR/records-000002.parquet is of another run than DIR/records-000001.parquet: "},
		{[][]byte{good[:len(good)-100]}, "records: DIR/records-000001.parquet: truncated: no Parquet footer at its end"},
		{[][]byte{{}}, "records: DIR/records-000001.parquet: not a Parquet file (0 bytes)"},
		{[][]byte{[]byte("request,step\na,1\n")}, "records: DIR/records-000001.parquet: not a Parquet file (17 bytes)"},
		{[][]byte{foreign()}, "records: DIR/records-000001.parquet: not a file of exacta records: no exacta.checksum in its metadata"},
		{[][]byte{foreign(parquet.KeyValueMetadata(keyChecksum, unsealed))}, "records: DIR/records-000001.parquet: not a file of exacta records: no exacta.schema_version in its metadata"},
		{[][]byte{foreign(parquet.KeyValueMetadata(keyChecksum, unsealed), parquet.KeyValueMetadata(keySchema, "7"))}, "records: DIR/records-000001.parquet: schema version 7; this program reads version " + SchemaVersion},
		{[][]byte{sealed(encode(Meta{Run: "x"}, []fewer{{"x", "a"}}))}, "records: DIR/records-000001.parquet: column sequence is missing"},
		{[][]byte{sealed(encode(Meta{Run: "x"}, []retyped{{"x", "a", 1}}))}, "records: DIR/records-000001.parquet: column sequence is of type int32; schema version " + SchemaVersion + " has int64"},
		{[][]byte{sealed(encode(Meta{Run: "x"}, []more{{}}))}, "records: DIR/records-000001.parquet: column luck is unknown to schema version " + SchemaVersion},
		{[][]byte{segment(t, "x", func(r *row) { r.Run = "z" })}, `records: DIR/records-000001.parquet: step 3, request p0.r0/q1: is of run "z" among records of run "x"`},
		{[][]byte{segment(t, "x", func(r *row) { r.Step = 1 })}, "records: DIR/records-000001.parquet: step 1, request p0.r0/q1: follows step 3; steps rise, or start again at 0 with another engine"},
		{[][]byte{segment(t, "x", func(r *row) { r.Step = -1 })}, "records: DIR/records-000001.parquet: step -1, request p0.r0/q1: follows step 3; steps rise, or start again at 0 with another engine"},
		{[][]byte{segment(t, "x", func(r *row) { r.Emitted = 99 })}, "records: DIR/records-000001.parquet: step 3, request p0.r0/q1: emitted is 99 and emitted_ids has"},
		{[][]byte{segment(t, "x", func(r *row) { r.Gaps, r.Hashes = nil, []uint64{1} })}, "records: DIR/records-000001.parquet: step 3, request p0.r0/q1: has 1 hashes and 0 gaps"},
		{[][]byte{segment(t, "x", func(r *row) { r.Phase = "dream" })}, `records: DIR/records-000001.parquet: step 3, request p0.r0/q1: phase is "dream"; it is prefill or decode`},
		{[][]byte{segment(t, "x", func(r *row) { r.NextKind = "guess" })}, `records: DIR/records-000001.parquet: step 3, request p0.r0/q1: next_kind is "guess"; it is bonus, correction, sampled or none`},
		{[][]byte{segment(t, "x", func(r *row) { r.Accepted = -1 })}, "records: DIR/records-000001.parquet: step 3, request p0.r0/q1: accepted is -1; it is 0..65536"},
		{[][]byte{segment(t, "x", func(r *row) { r.KExecuted = 1 << 30 })}, "records: DIR/records-000001.parquet: step 3, request p0.r0/q1: k_executed is 1073741824; it is 0..65536"},
	} {
		require.Contains(t, problem(t, put(t, c.files...)), c.want)
	}
}

func TestDirectoryRefusals(t *testing.T) {
	good := segment(t, "x", nil)
	dir := put(t, good, good, good)
	require.NoError(t, os.Remove(filepath.Join(dir, segmentName(2))))
	require.Equal(t, "records: DIR holds records-000003.parquet where records-000002.parquet is expected; a segment is missing", problem(t, dir))

	dir = put(t, good)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "records-old.parquet"), good, 0o644))
	require.Equal(t, "records: DIR/records-old.parquet is not the name of a segment (records-000001.parquet, ...)", problem(t, dir))

	require.Equal(t, "records: open DIR: no such file or directory", problem(t, filepath.Join(dir, "none")))
}

func TestSegmentOrder(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []int{1_000_000, 999_999, 2, 10} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, segmentName(n)), nil, 0o644))
	}
	numbers, err := segments(dir)
	require.NoError(t, err)
	require.Equal(t, []int{2, 10, 999_999, 1_000_000}, numbers)
}

// Every byte of a segment is under its checksum: no changed bit and no cut goes
// unnoticed, and none reaches the Parquet library.
func TestEveryByteCounts(t *testing.T) {
	good := segment(t, "x", nil)
	require.NoError(t, checkSeal(good))
	for i := range good {
		for _, bit := range []byte{1, 0x80} {
			good[i] ^= bit
			require.Error(t, checkSeal(good), "byte %d of %d", i, len(good))
			good[i] ^= bit
		}
	}
	for n := range good {
		require.Error(t, checkSeal(good[:n:n]), "cut at %d of %d", n, len(good))
	}
	require.NoError(t, checkSeal(good))
}

// A segment that is wrong under a right checksum is an error too, not a panic.
func TestGuard(t *testing.T) {
	good := segment(t, "x", nil)
	for at := 4; at < len(good)/2; at += 97 {
		bad := bytes.Clone(good)
		copy(bad[at:], make([]byte, 200))
		copy(digits(bad), unsealed)
		require.NoError(t, seal(bad))
		require.NotEmpty(t, problem(t, put(t, bad)), "zeros at %d", at)
	}
}

func FuzzReader(f *testing.F) {
	good := segment(f, "x", nil)
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add([]byte("PAR1PAR1"))
	f.Add([]byte("PAR1" + sealMark + unsealed + "PAR1"))
	f.Fuzz(func(t *testing.T, content []byte) {
		before := bytes.Clone(content)
		dir := put(t, content)
		p := problem(t, dir)
		require.Equal(t, before, content)
		if !bytes.Equal(content, good) {
			require.Contains(t, p, "records: DIR/records-000001.parquet: ")
		}
	})
}
