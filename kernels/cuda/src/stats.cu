// Top two, NaN count and hash of each row of logits.

enum { SEGMENT = 1024, MAX_SEGMENTS = 512 };
enum { TOP1, TOP2, LOGIT1, LOGIT2, HASH_LO, HASH_HI, NANS, SPARE };

struct StatsArgs {
	Env e;
	View<i32> dst;
	View<const float> x;
	i32 cols, vocab, hash, pad;
};
LAYOUT(StatsArgs, stats);

struct Top { float v1, v2; i32 i1, i2; };

// before is the order of candidates: numbers downwards, then NaN; equal ones by
// id. An id of -1 is no candidate.
INLINE bool before(float va, i32 ia, float vb, i32 ib) {
	if (ia < 0 || ib < 0) return ib < 0 && ia >= 0;
	bool na = va != va, nb = vb != vb;
	if (na != nb) return nb;
	if (!na && va != vb) return va > vb;
	return ia < ib;
}

INLINE void insert(Top& t, float v, i32 i) {
	if (before(v, i, t.v1, t.i1)) {
		t.v2 = t.v1, t.i2 = t.i1;
		t.v1 = v, t.i1 = i;
	} else if (before(v, i, t.v2, t.i2)) {
		t.v2 = v, t.i2 = i;
	}
}

INLINE u64 mix(u64 h, u64 v) {
	h = (h ^ v) * 0xff51afd7ed558ccdull;
	return h ^ h >> 29;
}

const u64 HASH_SEED = 0x9e3779b97f4a7c15ull;

INLINE u64 bits(float f) { return f != f ? 0x7fc00000u : __float_as_uint(f); }

// One block per row. Four neighbouring threads are the four lanes of a segment.
KERNEL(stats, StatsArgs) {
	__shared__ Top tops[THREADS];
	__shared__ i32 nans[THREADS];
	__shared__ u64 seg[MAX_SEGMENTS];
	const i32 r = blockIdx.x, tid = threadIdx.x;
	const float* x = a.x.row(r);
	Top t = {0, 0, -1, -1};
	i32 nan = 0;
	for (i32 i = tid; i < a.cols; i += THREADS) {
		float v = x[i];
		nan += v != v;
		if (i < a.vocab) insert(t, v, i);
	}
	tops[tid] = t;
	nans[tid] = nan;
	const i32 segments = (a.cols + SEGMENT - 1) / SEGMENT;
	if (a.hash) {
		for (i32 s0 = 0; s0 < segments; s0 += THREADS / 4) {
			const i32 s = s0 + tid / 4, lane = tid % 4, n = min(SEGMENT, a.cols - s * SEGMENT);
			u64 h = HASH_SEED + lane;
			for (i32 i = lane; i < n; i += 4) h = mix(h, bits(x[s * SEGMENT + i]));
			u64 f = (u64)n;
			for (int j = 0; j < 4; j++) f = mix(f, __shfl_sync(~0u, h, j, 4));
			if (lane == 0 && s < segments) seg[s] = f;
		}
	}
	for (int o = THREADS / 2; o > 0; o >>= 1) {
		__syncthreads();
		if (tid >= o) continue;
		insert(tops[tid], tops[tid + o].v1, tops[tid + o].i1);
		insert(tops[tid], tops[tid + o].v2, tops[tid + o].i2);
		nans[tid] += nans[tid + o];
	}
	__syncthreads();
	if (tid != 0) return;
	u64 h = 0;
	if (a.hash) {
		h = HASH_SEED;
		for (i32 s = 0; s < segments; s++) h = mix(h, seg[s]);
	}
	i32* d = a.dst.row(r);
	d[TOP1] = tops[0].i1;
	d[TOP2] = tops[0].i2;
	d[LOGIT1] = __float_as_int(tops[0].v1);
	d[LOGIT2] = __float_as_int(tops[0].v2);
	d[HASH_LO] = (i32)(u32)h;
	d[HASH_HI] = (i32)(u32)(h >> 32);
	d[NANS] = nans[0];
	d[SPARE] = 0;
}
