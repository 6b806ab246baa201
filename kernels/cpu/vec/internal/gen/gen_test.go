package main

import (
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWorkedExamples encodes two instructions whose bytes were derived by hand
// from the rules of the EVEX prefix.
func TestWorkedExamples(t *testing.T) {
	require.Equal(t, []byte{0x62, 0xc2, 0x2e, 0x40, 0x52, 0xc9}, evexReg(vdpbf16ps, 17, 26, 9))
	require.Equal(t, []byte{0x62, 0xf2, 0x3e, 0x50, 0x52, 0x5e, 0x02}, evexMem(vdpbf16ps, 3, 24, mem{base: "SI", disp: 8, bcast: true}))
}

// TestRegisterEdges compares with the GNU assembler's bytes around the edges of
// the register numbers, in each position.
func TestRegisterEdges(t *testing.T) {
	for _, tc := range []struct {
		d, s1, s2 int
		want      string
	}{
		{0, 1, 2, "62f2764852c2"},
		{1, 0, 2, "62f27e4852ca"},
		{1, 2, 0, "62f26e4852c8"},
		{7, 1, 2, "62f2764852fa"},
		{1, 7, 2, "62f2464852ca"},
		{1, 2, 7, "62f26e4852cf"},
		{8, 1, 2, "6272764852c2"},
		{1, 8, 2, "62f23e4852ca"},
		{1, 2, 8, "62d26e4852c8"},
		{15, 1, 2, "6272764852fa"},
		{1, 15, 2, "62f2064852ca"},
		{1, 2, 15, "62d26e4852cf"},
		{16, 1, 2, "62e2764852c2"},
		{1, 16, 2, "62f27e4052ca"},
		{1, 2, 16, "62b26e4852c8"},
		{31, 1, 2, "6262764852fa"},
		{1, 31, 2, "62f2064052ca"},
		{1, 2, 31, "62926e4852cf"},
	} {
		require.Equal(t, tc.want, hex.EncodeToString(evexReg(vdpbf16ps, tc.d, tc.s1, tc.s2)), "%+v", tc)
	}
}

// TestAddresses compares with the GNU assembler's bytes for vdpbf16ps zmm19,
// zmm30 and memory: bases that need a SIB byte or a displacement, scaled and
// unscaled displacements, indices.
func TestAddresses(t *testing.T) {
	for _, tc := range []struct {
		m    mem
		want string
	}{
		{mem{"DI", "", 1, 0, true}, "62e20e50521f"},
		{mem{"DI", "", 1, 4, true}, "62e20e50525f01"},
		{mem{"SI", "", 1, 508, true}, "62e20e50525e7f"},
		{mem{"SI", "", 1, 512, true}, "62e20e50529e00020000"},
		{mem{"SI", "", 1, -512, true}, "62e20e50525e80"},
		{mem{"SI", "", 1, 6, true}, "62e20e50529e06000000"},
		{mem{"R12", "", 1, 0, true}, "62c20e50521c24"},
		{mem{"R12", "", 1, 8, true}, "62c20e50525c2402"},
		{mem{"R13", "", 1, 0, true}, "62c20e50525d00"},
		{mem{"SP", "", 1, 64, false}, "62e20e40525c2401"},
		{mem{"R13", "R8", 4, 0, true}, "62820e50525c8500"},
		{mem{"DI", "R8", 1, 4, true}, "62a20e50525c0701"},
		{mem{"DI", "R11", 2, 12, true}, "62a20e50525c5f03"},
		{mem{"R10", "R12", 1, 4, true}, "62820e50525c2201"},
		{mem{"R10", "R8", 8, 0, true}, "62820e50521cc2"},
		{mem{"BP", "R13", 2, 0, false}, "62a20e40525c6d00"},
		{mem{"SI", "", 1, 64, false}, "62e20e40525e01"},
		{mem{"SI", "", 1, 8192, false}, "62e20e40529e00200000"},
		{mem{"SI", "", 1, -8192, false}, "62e20e40525e80"},
		{mem{"AX", "CX", 1, 100000, true}, "62e20e50529c08a0860100"},
		{mem{"DX", "AX", 8, 64, false}, "62e20e40525cc201"},
	} {
		require.Equal(t, tc.want, hex.EncodeToString(evexMem(vdpbf16ps, 19, 30, tc.m)), "%v", tc.m)
	}
}

// TestDisassembly gives every instruction that the generator writes as bytes to
// GNU objdump and compares its reading with the comment beside the bytes.
func TestDisassembly(t *testing.T) {
	objdump, err := exec.LookPath("objdump")
	if err != nil {
		t.Skip("GNU objdump is not installed")
	}
	files, err := generate()
	require.NoError(t, err)
	var code []byte
	var want []string
	seen := map[string]bool{}
	line := regexp.MustCompile(`(?m)^\t(BYTE .*) // (.*)$`)
	for _, text := range files {
		for _, m := range line.FindAllStringSubmatch(string(text), -1) {
			if seen[m[1]] {
				continue
			}
			seen[m[1]] = true
			b, err := hex.DecodeString(strings.NewReplacer("BYTE $0x", "", "; ", "").Replace(m[1]))
			require.NoError(t, err)
			code = append(code, b...)
			want = append(want, m[2])
		}
	}
	require.Greater(t, len(want), 300)
	bin := filepath.Join(t.TempDir(), "code")
	require.NoError(t, os.WriteFile(bin, code, 0o600))
	out, err := exec.CommandContext(t.Context(), objdump, "-D", "-b", "binary", "-m", "i386:x86-64", "-M", "intel", "-w", bin).Output()
	require.NoError(t, err)
	var got []string
	for _, m := range regexp.MustCompile(`(?m)^\s+[0-9a-f]+:\t[0-9a-f ]+\t(.*)$`).FindAllStringSubmatch(string(out), -1) {
		got = append(got, plain(m[1]))
	}
	for i := range want {
		want[i] = plain(want[i])
	}
	require.Equal(t, want, got)
}

// plain brings an instruction to one notation: no sizes and spaces, 64-bit
// registers by Intel's names, hexadecimal displacements as they are.
func plain(s string) string {
	s = strings.ToLower(strings.NewReplacer("DWORD BCST ", "", "ZMMWORD PTR ", "", "DWORD PTR ", "", "{1to16}", "", " ", "").Replace(s))
	s = regexp.MustCompile(`\b(ax|bx|cx|dx|si|di|bp|sp)\b`).ReplaceAllString(s, "r$1")
	s = strings.ReplaceAll(s, "*1", "")
	return regexp.MustCompile(`0x[0-9a-f]+`).ReplaceAllStringFunc(s, func(h string) string {
		v := 0
		for _, c := range h[2:] {
			v = v*16 + strings.IndexRune("0123456789abcdef", c)
		}
		return strconv.Itoa(v)
	})
}

// TestOtherInstructions compares the conversions with GNU objdump's reading of
// fixed bytes: vcvtne2ps2bf16 zmm17, zmm26, zmm9 and vcvtneps2bf16 ymm17, zmm9.
func TestOtherInstructions(t *testing.T) {
	require.Equal(t, "62c22f4072c9", hex.EncodeToString(evexReg(vcvtne2ps2bf16, 17, 26, 9)))
	require.Equal(t, "62c27e4872c9", hex.EncodeToString(evexReg(vcvtneps2bf16, 17, 0, 9)))
}

// TestUpToDate fails when a checked-in file is not what the generator writes.
func TestUpToDate(t *testing.T) {
	require.NoError(t, run(filepath.Join("..", ".."), true))
}
