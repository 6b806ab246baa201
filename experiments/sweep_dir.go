package experiments

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"exacta.dev/exacta/internal/disk"
)

// Files of a sweep's directory, beside the run directories of its points, each of
// which has the point's file and the log of its run next to it (.yaml, .log, .txt).
const (
	sweepFile  = "sweep.yaml"   // the file of the sweep; a directory with it is a sweep's
	pointsFile = "points.jsonl" // a SweepPoint a line
	resultFile = "results.json" // SweepResult
	// statusFile, in a point's run directory, says that the point is finished:
	// PointStatus. It is written last, whole or not at all.
	statusFile = "STATUS"
)

// SweepDir is the directory of a sweep.
type SweepDir struct {
	Dir    string
	Points []SweepPoint
}

// PointStatus is a finished point's STATUS.
type PointStatus struct {
	// Hash is that of the point, Summary the SHA-256 of its summary.json.
	Hash    string `json:"hash"`
	Summary string `json:"summary_sha256"`
	// Exit is what exacta run ended with: 0, or 1 where some output was not
	// exact.
	Exit    int       `json:"exit"`
	Version string    `json:"version"`
	Device  string    `json:"device,omitempty"` // that the point was pinned to
	Started time.Time `json:"started"`
	Seconds float64   `json:"seconds"`
}

// CreateSweep makes the directory of a sweep, which must not hold a run or a sweep.
// From then on OpenSweep knows all of it.
func CreateSweep(dir string, d *Document) (*SweepDir, error) {
	points, err := d.Points(CheckConfig)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, sweepFile)); err == nil {
		return nil, fmt.Errorf("run directory: %s already holds a sweep; exacta run --resume %s goes on with it", dir, dir)
	}
	if dir, err = makeDir(dir, "sweep"); err != nil {
		return nil, err
	}
	text, err := d.whole()
	if err == nil {
		err = disk.WriteWhole(filepath.Join(dir, sweepFile), text)
	}
	if err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	s := &SweepDir{Dir: dir, Points: points}
	return s, s.layOut()
}

// OpenSweep opens the directory of a sweep that was begun.
func OpenSweep(dir string) (*SweepDir, error) {
	name := filepath.Join(dir, sweepFile)
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: no sweep was begun there: it has no %s", dir, sweepFile)
	} else if err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	d, err := ParseDocument(name, text)
	if err != nil {
		return nil, err
	}
	s := &SweepDir{Dir: dir}
	if s.Points, err = d.Points(CheckConfig); err != nil {
		return nil, err
	}
	return s, s.layOut()
}

// IsSweep reports whether a directory is a sweep's.
func IsSweep(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, sweepFile))
	return err == nil
}

// layOut writes the list of points and their files, unless they are there.
func (s *SweepDir) layOut() error {
	var list []byte
	for i := range s.Points {
		p := &s.Points[i]
		line, err := json.Marshal(p)
		if err != nil {
			return err
		}
		list = append(append(list, line...), '\n')
		if err := s.keep(p.Dir+".yaml", p.text); err != nil {
			return err
		}
	}
	return s.keep(pointsFile, list)
}

// keep writes a file that is always the same, if it is not there.
func (s *SweepDir) keep(name string, text []byte) error {
	name = filepath.Join(s.Dir, name)
	if has, err := os.ReadFile(name); err == nil && string(has) == string(text) {
		return nil
	}
	if err := disk.WriteWhole(name, text); err != nil {
		return fmt.Errorf("run directory: %w", err)
	}
	return nil
}

// path is a point's run directory.
func (s *SweepDir) path(p *SweepPoint) string { return filepath.Join(s.Dir, filepath.FromSlash(p.Dir)) }

// Finished returns the status of a finished point, or nil. A point whose files are
// not those that its status is of is not finished.
func (s *SweepDir) Finished(p *SweepPoint) *PointStatus {
	text, err := os.ReadFile(filepath.Join(s.path(p), statusFile))
	if err != nil {
		return nil
	}
	var st PointStatus
	if json.Unmarshal(text, &st) != nil || st.Hash != p.Hash {
		return nil
	}
	if sum, err := os.ReadFile(filepath.Join(s.path(p), "summary.json")); err != nil || textHash(sum) != st.Summary {
		return nil
	}
	return &st
}

// Left lists the points that are not finished.
func (s *SweepDir) Left() (out []int) {
	for i := range s.Points {
		if s.Finished(&s.Points[i]) == nil {
			out = append(out, i)
		}
	}
	return out
}

// Finish says that a point is finished: its run directory is whole. Hash and Summary
// of the status are filled in.
func (s *SweepDir) Finish(point int, st PointStatus) error {
	p := &s.Points[point]
	sum, err := os.ReadFile(filepath.Join(s.path(p), "summary.json"))
	if err != nil {
		return fmt.Errorf("point %d: %w", p.Point, err)
	}
	st.Hash, st.Summary = p.Hash, textHash(sum)
	text, err := json.Marshal(st)
	if err != nil {
		return err
	}
	return disk.WriteWhole(filepath.Join(s.path(p), statusFile), append(text, '\n'))
}

// lockPatience is how long a point that another process holds is waited for.
const lockPatience = 3 * time.Second

// lock keeps other processes from a point.
func (s *SweepDir) lock(ctx context.Context, p *SweepPoint) (func(), error) {
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	unlock, err := disk.Lock(ctx, s.path(p)+".lock")
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("point %d is being run by another process", p.Point)
	}
	return unlock, err
}
