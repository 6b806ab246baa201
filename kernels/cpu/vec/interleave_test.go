package vec

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// aligned returns n words that begin at a cache line.
func aligned(n int) []uint32 {
	room := make([]uint32, n+16)
	at := (64 - int(uintptr(unsafe.Pointer(&room[0]))%64)) % 64 / 4
	return room[at : at+n]
}

// Every set puts every pair in its place and touches nothing else.
func TestInterleave(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, set := range Sets() {
		for _, blocks := range []int{0, 1, 2, 5} {
			for _, extra := range []int{0, 2, 60} {
				for lane := 0; lane < PanelRows; lane += LaneRows {
					line := 4*LaneRows*blocks + extra
					src := make([]byte, LaneRows*line+1)
					for i := range src {
						src[i] = byte(r.Uint32())
					}
					src = src[1:] // rows may lie at any byte
					dst := aligned(LaneRows*blocks*PanelRows + PanelRows)
					for i := range dst {
						dst[i] = 0xdeadbeef
					}
					want := append([]uint32(nil), dst...)
					for i := range LaneRows * blocks {
						for row := range LaneRows {
							want[i*PanelRows+lane+row] = binary.LittleEndian.Uint32(src[row*line+4*i:])
						}
					}
					if len(src) == 0 {
						src = make([]byte, 1)
					}
					set.Interleave(&dst[lane], &src[0], line, blocks)
					require.Equal(t, want, dst, "%s, %d blocks", set.Name, blocks)
				}
			}
		}
	}
}

// Every set sees each NaN and infinity, and takes nothing else for one.
func TestInterleaveOdd(t *testing.T) {
	const blocks, line = 2, 4 * LaneRows * 2
	good := []uint16{0x7f7f, 0xff7f, 0x0001, 0x8000, 0x0000, 0x3f80, 0x807f}
	src, dst := make([]byte, LaneRows*line), aligned(LaneRows*blocks*PanelRows)
	for i := range len(src) / 2 {
		binary.LittleEndian.PutUint16(src[2*i:], good[i%len(good)])
	}
	for _, set := range Sets() {
		require.Zero(t, set.Interleave(&dst[0], &src[0], line, blocks), set.Name)
		for i := range len(src) / 2 {
			old := binary.LittleEndian.Uint16(src[2*i:])
			for _, bad := range []uint16{0x7f80, 0xff80, 0x7fc0, 0xffff} {
				binary.LittleEndian.PutUint16(src[2*i:], bad)
				require.NotZero(t, set.Interleave(&dst[0], &src[0], line, blocks), "%s: %#x at %d", set.Name, bad, i)
			}
			binary.LittleEndian.PutUint16(src[2*i:], old)
		}
		require.Zero(t, set.Interleave(&dst[0], &src[0], line, 0), set.Name)
	}
}

func BenchmarkInterleave(b *testing.B) {
	const blocks, line = 64, 4096
	src, dst := make([]byte, LaneRows*line), aligned(LaneRows*blocks*PanelRows)
	for _, set := range Sets() {
		b.Run(set.Name, func(b *testing.B) {
			b.SetBytes(LaneRows * line)
			for b.Loop() {
				set.Interleave(&dst[0], &src[0], line, blocks)
			}
		})
	}
}
