package acceptance

import (
	"fmt"
	"strings"

	"github.com/parquet-go/parquet-go"
)

// checkColumns compares the columns of a file with those of this schema version:
// every one must be there with its type, and no other.
func checkColumns(have, want *parquet.Schema) error {
	theirs := map[string]parquet.Node{}
	for _, f := range have.Fields() {
		theirs[f.Name()] = f
	}
	for _, ours := range want.Fields() {
		name := ours.Name()
		got := theirs[name]
		if got == nil {
			return fmt.Errorf("column %s is missing; schema version %s has it as %s", name, SchemaVersion, columnType(ours))
		}
		if !parquet.EqualNodes(got, ours) {
			return fmt.Errorf("column %s is of type %s; schema version %s has %s", name, columnType(got), SchemaVersion, columnType(ours))
		}
		delete(theirs, name)
	}
	for _, f := range have.Fields() {
		if theirs[f.Name()] != nil {
			return fmt.Errorf("column %s is unknown to schema version %s", f.Name(), SchemaVersion)
		}
	}
	return nil
}

// columnType says a column's type as SCHEMA.md does: string, int32, int64,
// uint64, float32, bool, "list of" one of them; other types in Parquet's words.
func columnType(n parquet.Node) string {
	switch {
	case n.Optional():
		return "optional " + columnType(parquet.Required(n))
	case n.Repeated():
		return "repeated " + columnType(parquet.Required(n))
	case n.Leaf():
		return leafType(n.Type().String())
	}
	if f := n.Fields(); len(f) == 1 && f[0].Name() == "list" && !f[0].Leaf() && len(f[0].Fields()) == 1 {
		return "list of " + columnType(f[0].Fields()[0])
	}
	return "group of " + strings.Join(fieldNames(n), ", ")
}

func leafType(parquetName string) string {
	switch parquetName {
	case "STRING":
		return "string"
	case "INT(32,true)":
		return "int32"
	case "INT(64,true)":
		return "int64"
	case "INT(64,false)":
		return "uint64"
	case "FLOAT":
		return "float32"
	case "BOOLEAN":
		return "bool"
	}
	return parquetName
}

func fieldNames(n parquet.Node) []string {
	var names []string
	for _, f := range n.Fields() {
		names = append(names, f.Name())
	}
	return names
}
