//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"encoding/binary"
	"fmt"

	"exacta.dev/exacta/kernels"
)

// deviceCounters are the counters that kernels keep, in the order of src, the
// mark of the first fault among them.
const deviceCounters = 4

// countersAt is the offset of their landing place in the notes.
const countersAt = 64

// faultTexts says what a fault code means; the verbs take at, x and y.
var faultTexts = [...]string{
	1:  "row %d: index %d of %d rows",
	2:  "span %d: slot %d of %d",
	3:  "span %d: rows %d+%d do not fit the bucket or belong to another span",
	4:  "row %d: parent %d; it must be -1 or an earlier row than row %d of the span",
	5:  "row %d: position %d has no page in a table of %d",
	6:  "row %d: position %d of a rope table of %d",
	7:  "span %d: %d rows kept of %d",
	8:  "span %d: %d rows kept of %d; a span of more than MaxDraft+1 rows must be kept whole",
	9:  "span %d: row %d is not wanted at its own index (%d)",
	10: "span %d: starts at %d, the committed length is %d",
	11: "slot %d has length %d; it must be a multiple of %d",
	12: "slot %d: the snapshot was saved at length %d, not %d",
	13: "span %d: the %d rows kept of %d do not follow each other from the committed prefix on",
	15: "row %d: position %d of a mask of %d",
	14: "row %d: position %d; the span's start %d and the row's depth give another",
}

// fault returns what a kernel found wrong since the queue was made, if anything.
func (q *queue) fault() error {
	note := func(i int) int32 { return int32(binary.LittleEndian.Uint32(q.notes.Bytes[4*i:])) }
	code := note(0)
	if code == 0 {
		return nil
	}
	if int(code) >= len(faultTexts) || code < 0 {
		return fmt.Errorf("%s: unknown fault %d", opID(note(1)), code)
	}
	return fmt.Errorf("%s: "+faultTexts[code], opID(note(1)), note(2), note(3), note(4))
}

// counters adds what the kernels counted to what was counted at launch. The
// stream must be idle.
func (q *queue) counters() kernels.Counters {
	c := q.work
	if q.err != nil {
		return c
	}
	if q.counted {
		return q.last
	}
	q.waits++
	err := q.be.enter()
	defer q.be.leave()
	if err == nil {
		err = q.stream.Copy2D(q.notes.Dev+countersAt, q.device.bytes, q.device.ptr, q.device.bytes, q.device.bytes, 1)
	}
	if err == nil {
		err = q.stream.Synchronize()
	}
	if err != nil {
		q.settle(fmt.Errorf("counters: %w", err))
		return c
	}
	at := func(i int) uint64 { return binary.LittleEndian.Uint64(q.notes.Bytes[countersAt+8*i:]) }
	c.AttendRows, c.KVTokens, c.DeltaRows = at(0), at(1), at(2)
	q.last, q.counted = c, true
	return c
}
