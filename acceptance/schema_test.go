package acceptance

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"
)

// tableRows returns the cells of SCHEMA.md's table lines under a heading.
func tableRows(t *testing.T, heading string) [][]string {
	t.Helper()
	text, err := os.ReadFile("SCHEMA.md")
	require.NoError(t, err)
	_, section, ok := strings.Cut(string(text), "\n## "+heading+"\n")
	require.True(t, ok, "SCHEMA.md has no section %q", heading)
	section, _, _ = strings.Cut(section, "\n## ")
	var rows [][]string
	for line := range strings.Lines(section) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		cells[0] = strings.Trim(cells[0], "`")
		rows = append(rows, cells)
	}
	return rows
}

func TestSchemaDocumentsEveryColumn(t *testing.T) {
	var inCode, inDoc []string
	for _, f := range parquet.SchemaOf(row{}).Fields() {
		inCode = append(inCode, f.Name()+" "+columnType(f))
	}
	for _, cells := range tableRows(t, "Columns") {
		require.Len(t, cells, 4, "line of column %s", cells[0])
		require.Greater(t, len(cells[3]), 10, "column %s has no meaning", cells[0])
		inDoc = append(inDoc, cells[0]+" "+cells[1])
	}
	require.Equal(t, inCode, inDoc, "columns and their types, in SCHEMA.md (actual) and in the code (expected)")
}

func TestSchemaDocumentsMetadata(t *testing.T) {
	content, err := encode(Meta{Run: "r", Provenance: map[string]string{"model": "m"}}, []row{{}}, parquet.KeyValueMetadata(keyThrough, "2"))
	require.NoError(t, err)
	f, err := parquet.OpenFile(bytes.NewReader(content), int64(len(content)))
	require.NoError(t, err)
	var inFile, inDoc []string
	for _, kv := range f.Metadata().KeyValueMetadata {
		key := kv.Key
		if strings.HasPrefix(key, keyProvenance) {
			key = keyProvenance + "*"
		}
		inFile = append(inFile, key)
	}
	for _, cells := range tableRows(t, "File metadata") {
		inDoc = append(inDoc, cells[0])
	}
	require.ElementsMatch(t, inFile, inDoc)
}

func TestSchemaNamesItsVersion(t *testing.T) {
	text, err := os.ReadFile("SCHEMA.md")
	require.NoError(t, err)
	m := regexp.MustCompile(`(?m)^Schema version (\S+)\. `).FindSubmatch(text)
	require.NotNil(t, m)
	require.Equal(t, SchemaVersion, string(m[1]))
}
