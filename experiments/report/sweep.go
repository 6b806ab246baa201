package report

import (
	"fmt"
	"path/filepath"

	"exacta.dev/exacta/experiments"
)

// gatherSweep reads a sweep: what its points set and found, then each point that is
// finished.
func gatherSweep(dir string) ([]*Run, error) {
	s, err := experiments.OpenSweep(dir)
	if err != nil {
		return nil, err
	}
	found, err := s.Result()
	if err != nil {
		return nil, err
	}
	all := &Run{Dir: dir, Name: filepath.Base(dir), Kind: "sweep", Stamps: stamps(found.Simulated, found.Lossy, len(found.Left) > 0)}
	if len(found.Versions) > 1 {
		all.Stamps = append(all.Stamps, Stamp{"several versions", fmt.Sprintf("points were run by %q", found.Versions), true})
	}
	t := &Table{Title: "Points", Columns: []string{"point", "sets", "seconds", "device", "audits", "deterministic part"}}
	runs := []*Run{all}
	for i := range found.Points {
		p := &found.Points[i]
		of, err := gather(filepath.Join(dir, filepath.FromSlash(p.Dir)))
		if err != nil {
			return nil, err
		}
		verdict := text("pass")
		for _, r := range of {
			r.Name = fmt.Sprintf("%s, point %d: %s", r.Name, p.Point, p)
			for _, v := range r.Audits {
				all.Audits = append(all.Audits, Verdict{fmt.Sprintf("%s, point %d", v.Audit, p.Point), v.Verdict, v.Why})
				if !v.Passed() && verdict.Text == "pass" {
					verdict = Cell{Text: v.Verdict, Loud: v.Verdict == "fail"}
				}
			}
		}
		t.row(whole(p.Point), text(p.String()), number(p.Status.Seconds, 1), text(p.Status.Device), verdict, text(p.Deterministic[:12]))
		runs = append(runs, of...)
	}
	for _, left := range found.Left {
		t.row(whole(left), text(s.Points[left].String()), text("not finished"), text(""), text(""), text(""))
	}
	all.Tables = append(all.Tables, t)
	return runs, nil
}
