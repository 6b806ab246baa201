package kerneltest

import (
	"exacta.dev/exacta/kernels"
)

// track is a sequence on its way through a machine.
type track struct {
	name string
	rows [][]float32
	want [][]byte // of the rows, from one row at a time
	slot int
	at   int // committed
	end  int // rows to run; at most len(rows)
}

// baseline runs rows one at a time in slot 0 of a machine and returns the bytes
// of each.
func (m *machine) baseline(rows [][]float32) [][]byte {
	m.t.Helper()
	var out [][]byte
	m.ensure(0, len(rows))
	for i := range rows {
		out = append(out, m.plain(piece{start: i, rows: rows[i : i+1], kept: 1})[0][0])
	}
	return out
}

// plan says how a track's next span looks: good rows of the sequence, then bad
// rows that will be rejected.
type plan func(m *machine, tr *track) (good, bad int)

// chunks plans prefill chunks of n rows.
func chunks(n int) plan { return func(*machine, *track) (int, int) { return n, 0 } }

// verify plans verifications of up to k drafts, of which a random number is
// accepted.
func verify(k int) plan {
	return func(m *machine, _ *track) (int, int) {
		n := m.rnd.IntN(k + 1)
		good := m.rnd.IntN(n + 1)
		return 1 + good, n - good
	}
}

// mixed plans chunks and verifications.
func mixed(k int) plan {
	return func(m *machine, tr *track) (int, int) {
		if m.rnd.IntN(8) == 0 {
			return 1 + m.rnd.IntN(150), 0
		}
		return verify(k)(m, tr)
	}
}

// play runs the tracks to their ends in common batches and requires every row
// to be the wanted one. With shuffle, tracks pause at random, spans and rows lie
// in random places of random buckets, and now and then a span is not kept at
// all and comes again.
func (m *machine) play(shuffle bool, p plan, tracks ...*track) {
	m.t.Helper()
	for {
		var pieces []piece
		var running []*track
		left, total := 0, 0
		for _, tr := range tracks {
			if tr.at >= tr.end {
				continue
			}
			left++
			if shuffle && len(tracks) > 1 && m.rnd.IntN(4) == 0 {
				continue
			}
			good, bad := p(m, tr)
			good = min(good, tr.end-tr.at, bucketRows/len(tracks)-bad)
			rows := append([][]float32(nil), tr.rows[tr.at:tr.at+good]...)
			rows = append(rows, m.sequence(bad)...)
			m.ensure(tr.slot, tr.at+len(rows))
			pc := piece{slot: tr.slot, start: tr.at, rows: rows, kept: good}
			if shuffle && m.rnd.IntN(10) == 0 {
				pc.kept = 0
			}
			total += len(rows)
			pieces, running = append(pieces, pc), append(running, tr)
		}
		if left == 0 {
			return
		}
		if len(pieces) == 0 {
			continue
		}
		spans := len(pieces)
		if shuffle {
			spans += m.rnd.IntN(bucketSpans - spans + 1)
			total += m.rnd.IntN(min(40, bucketRows-total) + 1)
		}
		got := m.step(pieces, spans, total, shuffle)
		for i, tr := range running {
			m.check(tr, got[i], min(len(pieces[i].rows), tr.end-tr.at), pieces[i])
		}
	}
}

// check compares the good rows of a span and moves the track on.
func (m *machine) check(tr *track, got [][]byte, n int, p piece) {
	m.t.Helper()
	for j := range n {
		if p.kept > 0 && j >= p.kept || &p.rows[j][0] != &tr.rows[tr.at+j][0] {
			break
		}
		m.same(kernels.BF16, tr.want[tr.at+j], got[j], "%s: row %d (row %d of a span of %d from %d, slot %d)",
			tr.name, tr.at+j, j, len(p.rows), p.start, p.slot)
	}
	tr.at += p.kept
}
