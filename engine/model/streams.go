package model

import "exacta.dev/exacta/kernels"

// streams are n residual streams instead of one (hyper-connections,
// arXiv:2409.19606): the state of a row is n vectors of the hidden width, side by side
// in the columns of one buffer. It begins as n copies of the embedding. Around each
// sub-layer stands a site, which makes the sub-layer's input of them and gives them
// its output; behind the last layer a site of which only the first half is used makes
// the hidden state of the head.

// site is what stands between the streams and a sub-layer.
type site interface {
	// widths says what the site needs of the scratch.
	widths() siteWidths
	// collapse records the sub-layer's input dst (BF16 [rows, hidden]) of the
	// streams x (BF16 [rows, n*hidden]). What spread needs of it may stay in s.
	collapse(q kernels.Queue, dst, x kernels.Buf, s *streamScratch)
	// spread records that the streams x take in the sub-layer's output y.
	spread(q kernels.Queue, x, y kernels.Buf, s *streamScratch)
	// params is the number of parameters that a row reads.
	params() int64
}

// siteWidths are columns of a streamScratch; 0 is none.
type siteWidths struct {
	count  int  // streams
	normed bool // a norm of the streams
	low    int  // FP32
	mid    int  // BF16
	wide   bool // a weight for every element of the streams, FP32
	mix    bool // a matrix of the streams, FP32
}

// streamScratch are the streams and the activations of their sites.
type streamScratch struct {
	count  int
	x, y   kernels.Buf // BF16 [rows, count*hidden]; [rows, hidden]: a sub-layer's output
	normed kernels.Buf // BF16 [rows, count*hidden]
	low    kernels.Buf // F32 [rows, low]
	mid    kernels.Buf // BF16 [rows, mid]
	wide   kernels.Buf // F32 [rows, count*hidden]
	inject kernels.Buf // F32 [rows, count]
	mix    kernels.Buf // F32 [rows, count*count]
}

// reserve allocates what any of the blocks' sites needs; nothing if they have none.
func (s *streamScratch) reserve(b *buffers, rows, hidden int, blocks []*block) {
	var most siteWidths
	for _, bl := range blocks {
		most.normed = most.normed || bl.memory != nil
		for _, at := range []site{bl.mixSite, bl.feedSite} {
			if at == nil {
				continue
			}
			w := at.widths()
			most = siteWidths{
				count: w.count, normed: most.normed || w.normed, low: max(most.low, w.low), mid: max(most.mid, w.mid),
				wide: most.wide || w.wide, mix: most.mix || w.mix,
			}
		}
	}
	if s.count = most.count; s.count == 0 {
		return
	}
	all := s.count * hidden
	s.x, s.y = b.alloc(kernels.BF16, rows, all), b.alloc(kernels.BF16, rows, hidden)
	s.inject = b.alloc(kernels.F32, rows, s.count)
	for _, a := range []struct {
		dst  *kernels.Buf
		kind kernels.Kind
		cols int
		need bool
	}{
		{&s.normed, kernels.BF16, all, most.normed}, {&s.low, kernels.F32, most.low, most.low > 0},
		{&s.mid, kernels.BF16, most.mid, most.mid > 0}, {&s.wide, kernels.F32, all, most.wide},
		{&s.mix, kernels.F32, s.count * s.count, most.mix},
	} {
		if a.need {
			*a.dst = b.alloc(a.kind, rows, a.cols)
		}
	}
}

// enter records that all streams begin as x.
func (s *streamScratch) enter(q kernels.Queue, x kernels.Buf) {
	h := int(x.Cols)
	for i := range s.count {
		q.Copy(s.x.Top(int(x.Rows)).Columns(i*h, (i+1)*h), x)
	}
}

// streamTaps is where the numbers of single streams begin among taps.
const streamTaps = 1 << 20

// StreamTap is the tap of one of a model's residual streams after a number of layers;
// a plain number of layers means the mean of the streams.
func StreamTap(layers, stream int) int { return layers + (stream+1)*streamTaps }

// tapOf splits a tap; stream -1 is the mean.
func tapOf(tap int) (layers, stream int) { return tap % streamTaps, tap/streamTaps - 1 }

// allStreams lists the taps of all n streams after a number of layers.
func allStreams(layers, n int) (taps []int) {
	for i := range n {
		taps = append(taps, StreamTap(layers, i))
	}
	return taps
}
