package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Survey is what a checkpoint's headers say of it, whether the engine can run it or
// not.
type Survey struct {
	Format       string // "safetensors" or "gguf"
	ModelType    string // model_type, or general.architecture; empty if it isn't said
	Architecture string // architectures[0]
	Files        []SurveyFile
	Missing      []string // files that an index names and that are not there
	Tensors      []SurveyTensor
}

// SurveyFile is one file of weights.
type SurveyFile struct {
	Name  string
	Bytes int64
}

// SurveyTensor is one tensor as it is stored.
type SurveyTensor struct {
	Name  string // the file's
	Type  string // of its elements, as the format spells it
	Shape []int
	Bytes int64
	Used  bool // false for parts that the engine leaves out, such as a vision tower
}

// Len is the number of elements.
func (t SurveyTensor) Len() int64 {
	n := int64(1)
	for _, d := range t.Shape {
		n *= int64(d)
	}
	return n
}

// Examine reads the headers of a directory or GGUF file, without asking whether the
// engine knows the model. Errors name the file.
func Examine(path string) (*Survey, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("examine: %w", err)
	case info.IsDir():
		return examine(path, dirSource(path))
	case strings.HasSuffix(path, ggufSuffix):
		return examineGGUF(path)
	}
	return nil, fmt.Errorf("examine: %s is a file; give the directory that holds %s, or a file *%s", path, configFile, ggufSuffix)
}

// ExamineFS is Examine of the files at the root of fsys.
func ExamineFS(fsys fs.FS, name string) (*Survey, error) { return examine(name, fsSource{fsys}) }

func examine(name string, src source) (_ *Survey, err error) {
	ck := &Checkpoint{name: name, source: src, tensors: map[string]Tensor{}, small: map[string][]byte{}}
	defer func() {
		if err = errors.Join(err, ck.Close()); err != nil {
			err = fmt.Errorf("examine %s: %w", name, err)
		}
	}()
	s := &Survey{Format: "safetensors"}
	text, err := src.read(configFile)
	switch {
	case err == nil:
		s.identify(text)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	fileOf, err := ck.readIndex()
	if err != nil {
		return nil, err
	}
	files := []string{singleFile}
	if fileOf != nil {
		files = indexFiles(fileOf)
	}
	for _, file := range files {
		if there, err := src.exists(file); err != nil {
			return nil, err
		} else if !there {
			s.Missing = append(s.Missing, file)
			continue
		}
		if err := ck.addFile(file); err != nil {
			return nil, err
		}
	}
	for _, f := range ck.files {
		s.Files = append(s.Files, SurveyFile{f.name, int64(len(f.data))})
		for _, e := range f.head.entries {
			_, used := NormalName(e.name)
			s.Tensors = append(s.Tensors, SurveyTensor{e.name, string(e.dtype), e.shape, e.end - e.begin, used})
		}
	}
	return s, nil
}

// identify reads what names the model, leniently.
func (s *Survey) identify(config []byte) {
	var c struct {
		ModelType     string   `json:"model_type"`
		Architectures []string `json:"architectures"`
	}
	if json.Unmarshal(config, &c) != nil {
		return // opening the checkpoint says what is wrong
	}
	s.ModelType = c.ModelType
	if len(c.Architectures) > 0 {
		s.Architecture = c.Architectures[0]
	}
}

func examineGGUF(path string) (_ *Survey, err error) {
	ck := &Checkpoint{name: path}
	defer func() {
		if err = errors.Join(err, ck.Close()); err != nil {
			err = fmt.Errorf("examine %s: %w", path, err)
		}
	}()
	first, err := ck.mapGGUF(path)
	if err != nil {
		return nil, err
	}
	parts, err := ck.mapSplits(path, first)
	if err != nil {
		return nil, err
	}
	s := &Survey{Format: "gguf"}
	s.ModelType, _ = first.Values["general.architecture"].Text()
	s.Architecture = ggufArchs[s.ModelType].architecture
	for i, f := range parts {
		s.Files = append(s.Files, SurveyFile{filepath.Base(ck.files[i].name), int64(len(ck.files[i].data))})
		for _, t := range f.Tensors {
			s.Tensors = append(s.Tensors, SurveyTensor{t.Name, t.Type.String(), t.Shape, int64(len(t.Data)), t.Name != ropeFreqs})
		}
	}
	return s, nil
}
