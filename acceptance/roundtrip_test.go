package acceptance

import (
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"testing"

	"exacta.dev/exacta/engine"

	"github.com/stretchr/testify/require"
)

// randomRecord fills every field of a record with something that a reader must
// give back: a field that is added to engine.Record and not to the columns comes
// back as zero, and the test fails.
func randomRecord(t *testing.T, r *rand.Rand, step int64) *engine.Record {
	rec := &engine.Record{}
	v := reflect.ValueOf(rec).Elem()
	for i := range v.NumField() {
		f := v.Field(i)
		switch f.Kind() {
		case reflect.String:
			f.SetString([]string{"", "a/b", "прот", "line\nbreak", "\"", "exacta.checksum"}[r.IntN(6)])
		case reflect.Int32:
			f.SetInt(1 + r.Int64N(largest))
		case reflect.Int64:
			f.SetInt(1 + r.Int64N(math.MaxInt64))
		case reflect.Bool:
			f.SetBool(r.IntN(8) > 0)
		case reflect.Struct: // counters
			for j := range f.NumField() {
				f.Field(j).SetUint(1 + r.Uint64N(math.MaxInt64))
			}
		case reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 1+r.IntN(9), 20))
		default:
			require.Fail(t, "no random value for field "+v.Type().Field(i).Name)
		}
	}
	rec.Step = step
	rec.Simulated = rec.Simulation != ""
	rec.Phase = []engine.Phase{engine.Prefill, engine.Decode}[r.IntN(2)]
	rec.NextKind = []engine.NextKind{engine.NextBonus, engine.NextCorrection, engine.NextSampled, engine.NextNone}[r.IntN(4)]
	for _, ids := range [][]int32{rec.ProposedIDs, rec.TargetIDs, rec.EmittedIDs} {
		for i := range ids {
			ids[i] = int32(r.Uint32())
		}
	}
	rec.Parents = nil
	for i := range rec.ProposedIDs[:len(rec.ProposedIDs)*r.IntN(2)] {
		rec.Parents = append(rec.Parents, int32(r.IntN(i+1))-1)
	}
	rec.Hashes = make([]uint64, len(rec.Gaps))
	for i := range rec.Gaps {
		rec.Hashes[i] = r.Uint64()
		rec.Gaps[i] = []float32{0, float32(math.Copysign(0, -1)), math.MaxFloat32, math.SmallestNonzeroFloat32, float32(math.Inf(1)), r.Float32()}[r.IntN(6)]
	}
	return rec
}

func TestRoundTripOfRandomRecords(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 0))
	for _, n := range []int{1, 255, 256, 257, 1500} {
		var records []*engine.Record
		for step := int64(0); len(records) < n; step += r.Int64N(3) {
			records = append(records, randomRecord(t, r, step))
		}
		dir := t.TempDir()
		w, err := newWriter(dir, Meta{Run: "random"}, nil, 1+r.IntN(n+5), func(name string) (file, error) { return os.Create(name) })
		require.NoError(t, err)
		for _, rec := range records {
			require.NoError(t, w.Record(rec))
		}
		require.NoError(t, w.Close())
		same(t, records, read(t, dir))
	}
}

// The gap of two infinite logits is not a number, before and after.
func TestRoundTripNaN(t *testing.T) {
	rec := fakeRun(1, 1, 1, 3)[2]
	for i := range rec.Gaps {
		rec.Gaps[i] = float32(math.NaN())
	}
	got := read(t, write(t, Meta{Run: "x"}, []*engine.Record{rec}))
	require.Len(t, got[0].Gaps, len(rec.Gaps))
	for _, g := range got[0].Gaps {
		require.True(t, math.IsNaN(float64(g)))
	}
}
