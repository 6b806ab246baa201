package acceptance

import "exacta.dev/exacta/engine"

// freshGram is the length of the n-grams by which repetition is judged.
const freshGram = 4

// Fresh measures how much of the output repeats itself, and what acceptance and
// speed are where it does not. A small model's greedy output falls into loops,
// which any drafter predicts: the figures over all steps then flatter. A decode
// step is fresh if none of the 4-grams that its tokens complete has occurred
// before in the same output. The zero value is ready.
type Fresh struct {
	Grams, Repeated int64 // 4-grams of the outputs; those seen before
	Steps           int64 // fresh decode steps
	AcceptLengths   int64 // sum over them of engine.AcceptLength
	Emitted         int64 // tokens emitted in them
	TotalNs         int64 // their engine-step time

	seen map[int64]*fresh
}

// fresh is the state of one sequence.
type fresh struct {
	last  [freshGram]int32 // the last tokens, newest at the end
	n     int
	grams map[[freshGram]int32]struct{}
}

// Add takes one record; records come in step order.
func (f *Fresh) Add(r *engine.Record) {
	if f.seen == nil {
		f.seen = map[int64]*fresh{}
	}
	s := f.seen[r.Sequence]
	if s == nil {
		s = &fresh{grams: map[[freshGram]int32]struct{}{}}
		f.seen[r.Sequence] = s
	}
	repeated := int64(0)
	for _, id := range r.EmittedIDs {
		copy(s.last[:], s.last[1:])
		s.last[freshGram-1] = id
		if s.n++; s.n < freshGram {
			continue
		}
		f.Grams++
		if _, ok := s.grams[s.last]; ok {
			repeated++
		}
		s.grams[s.last] = struct{}{}
	}
	f.Repeated += repeated
	if repeated > 0 || r.Phase != engine.Decode || r.PrefillTokens > 0 {
		return
	}
	f.Steps++
	f.AcceptLengths += int64(r.Accepted.Length())
	f.Emitted += int64(r.Emitted())
	f.TotalNs += r.TotalNs
}

// RepeatedShare is the share of 4-grams that had occurred before in their
// output.
func (f *Fresh) RepeatedShare() float64 { return ratio(f.Repeated, f.Grams) }

// AcceptLength is the mean accept length of fresh steps.
func (f *Fresh) AcceptLength() float64 { return ratio(f.AcceptLengths, f.Steps) }

// TokS is the tokens per second of fresh steps. It is meaningful where one
// sequence runs at a time: step times are then a sequence's own.
func (f *Fresh) TokS() float64 { return 1e9 * ratio(f.Emitted, f.TotalNs) }
