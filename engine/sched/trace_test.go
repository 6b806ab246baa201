package sched

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
)

// harness runs the scripts in testdata. Its commands are methods, one per file:
// config, submit, cancel, step, known, replay. Sequences go by number.
type harness struct {
	*world
	t *testing.T
	// accept is how many drafts are right in the step that is running; done
	// and cancelled are the sequences that it ends.
	accept          int
	done, cancelled []int64
}

// TestTraces runs testdata/*.txt. To write the results anew:
//
//	go test ./engine/sched -run TestTraces -rewrite
func TestTraces(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		h := &harness{t: t}
		commands := map[string]func(*datadriven.TestData) string{
			"config": h.config, "submit": h.submit, "cancel": h.cancel,
			"step": h.step, "known": h.known, "replay": h.replay,
		}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			run := commands[d.Cmd]
			if run == nil {
				d.Fatalf(t, "no command %q", d.Cmd)
			}
			h.t = t
			return run(d)
		})
	})
}

// args are a command's arguments by key; the ones without a value are listed.
func (h *harness) args(d *datadriven.TestData) (byKey map[string]string, rest []string) {
	byKey = map[string]string{}
	for _, a := range d.CmdArgs {
		if len(a.Vals) == 0 {
			rest = append(rest, a.Key)
		} else {
			byKey[a.Key] = strings.Join(a.Vals, ",")
		}
	}
	return byKey, rest
}

func (h *harness) number(s string) int {
	n, err := strconv.Atoi(s)
	require.NoError(h.t, err)
	return n
}

func (h *harness) ids(s string) []int64 {
	var ids []int64
	for f := range strings.SplitSeq(s, ",") {
		ids = append(ids, int64(h.number(f)))
	}
	return ids
}

// text is an error's text, or ok.
func text(err error) string {
	if err != nil {
		return fmt.Sprintln("error:", err)
	}
	return "ok\n"
}
