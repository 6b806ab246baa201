package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// parseIndex reads model.safetensors.index.json: which file holds which
// tensor. File names come from outside, so one with a separator or a dot name
// is refused: an index reaches no file beside its own directory.
func parseIndex(text []byte) (fileOf map[string]string, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	seen := map[string]bool{}
	err = object(d, func(key string) error {
		if seen[key] {
			return fmt.Errorf("key %q occurs twice", key)
		}
		seen[key] = true
		if key != "weight_map" {
			var skip json.RawMessage
			return d.Decode(&skip)
		}
		fileOf, err = parseWeightMap(d)
		return err
	})
	switch {
	case err != nil:
		return nil, jsonError("index", err)
	case fileOf == nil:
		return nil, errors.New("weight_map is missing")
	case len(fileOf) == 0:
		return nil, errors.New("weight_map is empty")
	}
	if rest := bytes.TrimSpace(text[d.InputOffset():]); len(rest) > 0 {
		return nil, fmt.Errorf("index has %d bytes after its JSON object", len(rest))
	}
	return fileOf, nil
}

func parseWeightMap(d *json.Decoder) (map[string]string, error) {
	fileOf := map[string]string{}
	err := object(d, func(name string) error {
		if _, ok := fileOf[name]; ok {
			return fmt.Errorf("weight_map: name %q occurs twice", name)
		}
		t, err := token(d)
		if err != nil {
			return err
		}
		file, ok := t.(string)
		if !ok {
			return fmt.Errorf("weight_map: file of %q is %s; it must be a string", name, describe(t))
		}
		if err := checkFileName(file); err != nil {
			return fmt.Errorf("weight_map: file of %q: %w", name, err)
		}
		fileOf[name] = file
		return nil
	})
	return fileOf, err
}

func checkFileName(file string) error {
	if strings.ContainsAny(file, "/\\\x00") || file == "" || file == "." || file == ".." {
		return fmt.Errorf("%q is not a plain file name in the same directory", file)
	}
	if !strings.HasSuffix(file, ".safetensors") {
		return fmt.Errorf("%q does not end in .safetensors", file)
	}
	return nil
}

// indexFiles lists the files of an index, sorted, each once.
func indexFiles(fileOf map[string]string) []string {
	var files []string
	for _, f := range fileOf {
		files = append(files, f)
	}
	slices.Sort(files)
	return slices.Compact(files)
}
