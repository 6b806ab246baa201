package experiments

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"exacta.dev/exacta/experiments/load"
	"exacta.dev/exacta/internal/disk"
)

// ReadSummary reads summary.json of a run of strategies.
func ReadSummary(dir string) (*Summary, error) {
	name := filepath.Join(dir, "summary.json")
	sum, err := readSummary(name)
	if err == nil && sum == nil {
		err = fmt.Errorf("%s is not there: the directory holds no run that came to an end", name)
	}
	return sum, err
}

// HoldsLoad reports whether a directory is that of a load experiment.
func HoldsLoad(dir string) bool {
	text, err := os.ReadFile(filepath.Join(dir, load.SummaryFile))
	var v struct{ Kind string }
	return err == nil && json.Unmarshal(text, &v) == nil && v.Kind == load.Kind
}

// ReadLoadSummary reads summary.json of a load experiment.
func ReadLoadSummary(dir string) (*load.Summary, error) {
	name := filepath.Join(dir, load.SummaryFile)
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	sum := &load.Summary{}
	if err := json.Unmarshal(text, sum); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return sum, nil
}

// auditFile keeps the audits of a run in its directory.
const auditFile = "audit.json"

// KeptAudit is audit.json: what the audits of a run found, and what they looked at.
type KeptAudit struct {
	// Files is the SHA-256 of the run's files, as the audits read them.
	Files  string       `json:"files_sha256"`
	Result *AuditResult `json:"result"`
	// Stale says that the files are others now.
	Stale bool `json:"-"`
}

// KeepAudit writes what the audits found into the run's directory, beside what
// others of the same files have found.
func KeepAudit(dir string, res *AuditResult) error {
	files, err := filesHash(dir)
	if err != nil {
		return err
	}
	if old, err := ReadAudit(dir); err == nil && old != nil && !old.Stale {
		both := *res
		both.Tokens, both.Counts, both.Work = cmp.Or(res.Tokens, old.Result.Tokens), cmp.Or(res.Counts, old.Result.Counts), cmp.Or(res.Work, old.Result.Work)
		both.judge()
		res = &both
	}
	text, err := json.MarshalIndent(KeptAudit{Files: files, Result: res}, "", "  ")
	if err != nil {
		return err
	}
	return disk.WriteWhole(filepath.Join(dir, auditFile), append(text, '\n'))
}

// ReadAudit reads the audits that were made of a run, or returns nil.
func ReadAudit(dir string) (*KeptAudit, error) {
	name := filepath.Join(dir, auditFile)
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	k := &KeptAudit{}
	if err := json.Unmarshal(text, k); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if k.Result == nil {
		return nil, fmt.Errorf("%s: has no result", name)
	}
	files, err := filesHash(dir)
	k.Stale = files != k.Files
	return k, err
}

// auditedKinds are the kinds of files that audits read.
var auditedKinds = []string{".parquet", ".json", ".jsonl", ".yaml"}

// filesHash is the SHA-256 of names and contents of the files that audits read.
func filesHash(dir string) (string, error) {
	entries, err := os.ReadDir(dir) // in the order of names
	if err != nil {
		return "", fmt.Errorf("run directory: %w", err)
	}
	var names []string
	for _, e := range entries {
		if name := e.Name(); name != auditFile && slices.Contains(auditedKinds, filepath.Ext(name)) {
			names = append(names, filepath.Join(dir, name))
		}
	}
	h := sha256.New()
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			return "", fmt.Errorf("run directory: %w", err)
		}
		fmt.Fprintf(h, "%s\n", filepath.Base(name))
		n, err := io.Copy(h, f)
		if err = errors.Join(err, f.Close()); err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		fmt.Fprintf(h, "\n%d\n", n)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
