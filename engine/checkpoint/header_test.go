package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// file makes a safetensors file of a header text and n bytes of data.
func file(head string, n int) []byte {
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(head)))
	out = append(out, head...)
	return append(out, make([]byte, n)...)
}

func parse(raw []byte) (*header, error) { return parseHeader(raw, int64(len(raw))) }

func TestHeaderReadsTensors(t *testing.T) {
	h, err := parse(file(`{"__metadata__":{"format":"pt"},
		"b":{"dtype":"F32","shape":[2,2],"data_offsets":[4,20]},
		"a":{"data_offsets":[0,4],"shape":[2],"dtype":"BF16"},
		"none":{"dtype":"F32","shape":[0,7],"data_offsets":[20,20]}}   `, 20))
	require.NoError(t, err)
	require.Equal(t, map[string]string{"format": "pt"}, h.metadata)
	require.Equal(t, []entry{
		{"a", BF16, []int{2}, 0, 4}, {"b", F32, []int{2, 2}, 4, 20}, {"none", F32, []int{0, 7}, 20, 20},
	}, h.entries)
	for name, raw := range map[string][]byte{"no tensors": file("{}", 0), "scalar": file(`{"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}`, 4)} {
		_, err := parse(raw)
		require.NoError(t, err, name)
	}
}

// TestHeaderRefuses has one bad file for each rule of the format, with the
// exact error.
func TestHeaderRefuses(t *testing.T) {
	one := func(dtype, shape, offsets string) string {
		return fmt.Sprintf(`{"w":{"dtype":%s,"shape":%s,"data_offsets":%s}}`, dtype, shape, offsets)
	}
	two := func(a, b string) string {
		return fmt.Sprintf(`{"v":{"dtype":"U8","shape":[4],"data_offsets":%s},"w":{"dtype":"U8","shape":[4],"data_offsets":%s}}`, a, b)
	}
	huge := binary.LittleEndian.AppendUint64(nil, maxHeader+1)
	for name, c := range map[string]struct {
		raw  []byte
		want string
	}{
		"empty file":     {nil, "file has 0 bytes; a safetensors file begins with 8 bytes of header length"},
		"seven bytes":    {make([]byte, 7), "file has 7 bytes; a safetensors file begins with 8 bytes of header length"},
		"length 0":       {make([]byte, 16), "header length is 0; the least is 2, for {}"},
		"length 1":       {file("{", 0), "header length is 1; the least is 2, for {}"},
		"over the cap":   {huge, "header length is 100000001; the cap is 100000000"},
		"negative":       {append(make([]byte, 7), 0xff), "header length is 18374686479671623680; the cap is 100000000"},
		"past the end":   {file("{}", 0)[:9], "header length is 2, but only 1 bytes follow: the file is truncated or not safetensors"},
		"not UTF-8":      {file("{\"\xff\":1}", 0), "header is not valid UTF-8"},
		"not an object":  {file("[]", 0), "header begins with '['; it must be a JSON object"},
		"space before":   {file(" {}", 0), "header begins with ' '; it must be a JSON object"},
		"cut JSON":       {file(`{"w":{"dtype":"F32"`, 0), `header is not valid JSON: tensor "w": unexpected EOF`},
		"broken JSON":    {file(`{"w":}`, 0), `header is not valid JSON: tensor "w": invalid character '}' looking for beginning of value`},
		"text after":     {file("{} x", 0), "header has 2 bytes after its JSON object"},
		"entry no obj":   {file(`{"w":3}`, 0), `tensor "w": found 3 where an object must be`},
		"same name":      {file(two("[0,4]", "[4,8]")[:1]+`"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},`+two("[0,4]", "[4,8]")[1:], 8), `name "w" occurs twice`},
		"same meta":      {file(`{"__metadata__":{"a":"1","a":"2"}}`, 0), `__metadata__: key "a" occurs twice`},
		"meta twice":     {file(`{"__metadata__":{},"__metadata__":{}}`, 0), `name "__metadata__" occurs twice`},
		"meta number":    {file(`{"__metadata__":{"a":1}}`, 0), `__metadata__: value of "a" is 1; it must be a string`},
		"meta null":      {file(`{"__metadata__":{"a":null}}`, 0), `__metadata__: value of "a" is null; it must be a string`},
		"meta list":      {file(`{"__metadata__":[]}`, 0), `found "[" where an object must be`},
		"same key":       {file(`{"w":{"dtype":"U8","dtype":"U8"}}`, 0), `tensor "w": key "dtype" occurs twice`},
		"unknown key":    {file(`{"w":{"strides":[1]}}`, 0), `tensor "w": unknown key "strides"; known are dtype, shape, data_offsets`},
		"no dtype":       {file(`{"w":{"shape":[1],"data_offsets":[0,4]}}`, 4), `tensor "w": dtype is missing`},
		"no shape":       {file(`{"w":{"dtype":"F32","data_offsets":[0,4]}}`, 4), `tensor "w": shape is missing`},
		"no offsets":     {file(`{"w":{"dtype":"F32","shape":[1]}}`, 4), `tensor "w": data_offsets has 0 numbers; it must have 2`},
		"one offset":     {file(one(`"F32"`, "[1]", "[0]"), 4), `tensor "w": data_offsets has 1 numbers; it must have 2`},
		"three offsets":  {file(one(`"F32"`, "[1]", "[0,4,8]"), 4), `tensor "w": data_offsets has more than 2 numbers`},
		"unknown dtype":  {file(one(`"F31"`, "[1]", "[0,4]"), 4), `tensor "w": dtype "F31" is not known; known are ` + fmt.Sprint(DTypes())},
		"dtype number":   {file(one("32", "[1]", "[0,4]"), 4), `tensor "w": dtype is 32; it must be a string`},
		"negative shape": {file(one(`"F32"`, "[-1]", "[0,4]"), 4), `tensor "w": shape holds -1; it must hold integers from 0 to 2^63-1`},
		"fraction":       {file(one(`"F32"`, "[1.5]", "[0,4]"), 4), `tensor "w": shape holds 1.5; it must hold integers from 0 to 2^63-1`},
		"shape text":     {file(one(`"F32"`, `["1"]`, "[0,4]"), 4), `tensor "w": shape holds "1"; it must hold integers`},
		"shape no list":  {file(one(`"F32"`, "1", "[0,4]"), 4), `tensor "w": shape is 1; it must be an array of integers`},
		"many dims":      {file(one(`"F32"`, "["+strings.Repeat("1,", 16)+"1]", "[0,4]"), 4), `tensor "w": shape has more than 16 numbers`},
		"overflow":       {file(one(`"F32"`, "[4611686018427387904,4]", "[0,4]"), 4), `tensor "w": shape [4611686018427387904 4] of F32 overflows`},
		"half a byte":    {file(one(`"F4"`, "[3]", "[0,1]"), 1), `tensor "w": shape [3] of F4 is not a whole number of bytes`},
		"size lies":      {file(one(`"F32"`, "[2]", "[0,4]"), 4), `tensor "w": shape [2] of F32 takes 8 bytes, but data_offsets [0, 4] hold 4`},
		"backwards":      {file(one(`"F32"`, "[1]", "[4,0]"), 4), `tensor "w": data_offsets [4, 0] end before they begin`},
		"past the data":  {file(one(`"F32"`, "[2]", "[0,8]"), 4), `tensor "w" ends at byte 8 of the data, which has 4: the file is truncated or its header wrong`},
		"overlap":        {file(two("[0,4]", "[2,6]"), 6), `tensors "v" and "w" overlap: one ends at byte 4, the other begins at 2`},
		"same bytes":     {file(two("[0,4]", "[0,4]"), 4), `tensors "v" and "w" overlap: one ends at byte 4, the other begins at 0`},
		"hole":           {file(two("[0,4]", "[5,9]"), 9), `hole of 1 bytes before tensor "w", at byte 4 of the data`},
		"hole at 0":      {file(one(`"F32"`, "[1]", "[4,8]"), 8), `hole of 4 bytes before tensor "w", at byte 0 of the data`},
		"tail":           {file(one(`"F32"`, "[1]", "[0,4]"), 5), "tensors end at byte 4 of the data, which has 5"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse(c.raw)
			require.EqualError(t, err, c.want)
		})
	}
}

// A reader that has less of the file than the header needs must say so.
func TestHeaderNotRead(t *testing.T) {
	raw := file("{}", 0)
	_, err := parseHeader(raw[:9], int64(len(raw)))
	require.EqualError(t, err, "header of 2 bytes was not read")
}

// TestHeaderTruncations cuts a good file at every length: each cut is an
// error, none a panic.
func TestHeaderTruncations(t *testing.T) {
	raw := file(`{"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}`, 16)
	_, err := parse(raw)
	require.NoError(t, err)
	for n := range raw {
		_, err := parse(raw[:n])
		require.Error(t, err, "cut at %d", n)
	}
}

func FuzzHeader(f *testing.F) {
	f.Add(file(`{"__metadata__":{"a":"b"},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 4))
	f.Add(file(`{"v":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"w":{"dtype":"F4","shape":[2],"data_offsets":[4,5]}}`, 5))
	f.Add(file("{}", 0))
	f.Fuzz(func(t *testing.T, raw []byte) {
		tensors, err := ReadSafetensors(raw)
		if err != nil {
			return
		}
		// An accepted file accounts for each of its bytes.
		total := 8 + int(binary.LittleEndian.Uint64(raw))
		for _, x := range tensors {
			total += len(x.Bytes())
			if x.DType.Size() > 0 {
				require.Equal(t, x.Len()*x.DType.Size(), len(x.Bytes()))
			}
			if x.DType.IsFloat() {
				_, err := x.Float32s()
				require.NoError(t, err)
				_ = x.CheckFinite()
			}
		}
		require.Equal(t, len(raw), total)
	})
}

func TestIndexRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       "index is not valid JSON: unexpected EOF",
		"[]":                                     `found "[" where an object must be`,
		"{}":                                     "weight_map is missing",
		`{"weight_map":{}}`:                      "weight_map is empty",
		`{"weight_map":{"a":"x.safetensors"}`:    "index is not valid JSON: unexpected EOF",
		`{"weight_map":{"a":"x.safetensors"}} 1`: "index has 1 bytes after its JSON object",
		`{"weight_map":{"a":"x.safetensors","a":"x.safetensors"}}`:                `weight_map: name "a" occurs twice`,
		`{"weight_map":{"a":"x.safetensors"},"weight_map":{"b":"x.safetensors"}}`: `key "weight_map" occurs twice`,
		`{"weight_map":{"a":1}}`:                        `weight_map: file of "a" is 1; it must be a string`,
		`{"weight_map":{"a":"../x.safetensors"}}`:       `weight_map: file of "a": "../x.safetensors" is not a plain file name in the same directory`,
		`{"weight_map":{"a":"/x.safetensors"}}`:         `weight_map: file of "a": "/x.safetensors" is not a plain file name in the same directory`,
		`{"weight_map":{"a":"d\\x.safetensors"}}`:       `weight_map: file of "a": "d\\x.safetensors" is not a plain file name in the same directory`,
		`{"weight_map":{"a":""}}`:                       `weight_map: file of "a": "" is not a plain file name in the same directory`,
		`{"weight_map":{"a":".."}}`:                     `weight_map: file of "a": ".." is not a plain file name in the same directory`,
		`{"weight_map":{"a":"x.bin"}}`:                  `weight_map: file of "a": "x.bin" does not end in .safetensors`,
		`{"metadata":{"total_size":1},"weight_map":[]}`: `found "[" where an object must be`,
	} {
		_, err := parseIndex([]byte(text))
		require.EqualError(t, err, want, "%s", text)
	}
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"metadata":{"total_size":12},"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}}`))
	f.Add([]byte(`{"weight_map":{"a":"../../etc/passwd"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		fileOf, err := parseIndex(text)
		if err != nil {
			return
		}
		require.NotEmpty(t, fileOf)
		require.True(t, json.Valid(text))
		for _, file := range indexFiles(fileOf) {
			require.NotContains(t, file, "/")
			require.NotContains(t, file, "\\")
			require.True(t, strings.HasSuffix(file, ".safetensors"))
		}
	})
}
