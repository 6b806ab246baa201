// What layers keep of each position beside keys and states: tokens, whose n-grams are
// hashed, and gated values, which are convolved over positions.

enum { MAX_GRAM = 8, MAX_COLUMNS = 64, MAX_BLEND = 16 };

struct GramsArgs {
	Env e;
	Table dst; // rows of (size-1)*heads
	Table ids; // of tokens; null: themselves
	Batch b;
	i32* tokens; // this layer: [pages, PAGE]
	const i32* table;
	u64 multipliers[MAX_GRAM];
	u32 mod[MAX_COLUMNS], offset[MAX_COLUMNS];
	i32 slots, slot_pages, pages;
	i32 size, heads, stop, filler, pad;
};
LAYOUT(GramsArgs, grams);

// place_of returns where a position of a slot is kept in all pages; -1, and a fault,
// if its page is not set.
template <class Args> INLINE long long place_of(const Args& a, i32 r, i32 slot, i32 pos) {
	const i32 i = pos / PAGE, page = i < a.slot_pages ? a.table[(u64)slot * a.slot_pages + i] : -1;
	if (page < 0 || page >= a.pages) {
		fail(a.e, FAULT_PAGE, r, pos, a.slot_pages);
		return -1;
	}
	return (long long)page * PAGE + pos % PAGE;
}

// One block per row, of which one thread looks back.
KERNEL(grams, GramsArgs) {
	const i32 r = blockIdx.x;
	Span s;
	if (threadIdx.x > 0 || !span_of(a.e, a.b, a.slots, r, s)) return;
	const long long own = place_of(a, r, s.slot, s.start + s.row);
	if (own < 0) return;
	a.tokens[own] = a.b.token.at(r);
	i32* dst = a.dst.row(r);
	bool ended = false;
	i32 at = s.row;
	u64 h = 0;
	for (i32 i = 0; i < a.size; i++) {
		i32 token = 0;
		if (s.pos - i < 0) {
			ended = true;
		} else if (at >= 0) {
			token = a.b.token.at(s.off + at);
			at = parent_of(a.e, a.b, s, at);
		} else {
			const long long p = place_of(a, r, s.slot, s.pos - i);
			if (p < 0) return;
			token = a.tokens[p];
		}
		ended = ended || i > 0 && token == a.stop;
		u64 id = (u64)a.filler;
		if (!ended) {
			if (a.ids.p) {
				if (token < 0 || token >= a.ids.rows) {
					fail(a.e, FAULT_INDEX, r, token, a.ids.rows);
					return;
				}
				token = a.ids.at(token);
			}
			id = (u64)(long long)token;
		}
		h ^= id * a.multipliers[i];
		for (i32 c = (i - 1) * a.heads; i > 0 && c < i * a.heads; c++) dst[c] = (i32)(h % a.mod[c] + a.offset[c]);
	}
}

struct BlendArgs {
	Env e;
	View<u16> x, src;
	Batch b;
	u16* rows; // this layer: [pages, PAGE, h+n]
	const i32* table;
	const float *taps, *w;
	float eps;
	i32 n, h, k, dilation, centered;
	i32 slots, slot_pages, pages, pad;
};
LAYOUT(BlendArgs, blend);

// One block per row and stream.
KERNEL(blend, BlendArgs) {
	__shared__ float red[THREADS], scale[MAX_BLEND], gate[MAX_BLEND];
	const i32 r = blockIdx.x, stream = blockIdx.y, tid = threadIdx.x, dim = a.n + a.h;
	Span s;
	if (!span_of(a.e, a.b, a.slots, r, s)) return;
	const float* w = a.w + stream * a.h;
	const u16* in[MAX_BLEND];
	i32 taps = 0, at = s.row;
	for (i32 j = 0; j < a.k && s.pos - j * a.dilation >= 0; j++, taps++) {
		const i32 pos = s.pos - j * a.dilation;
		if (pos >= s.start) {
			while (a.b.pos.at(s.off + at) > pos) at = max(parent_of(a.e, a.b, s, at), 0);
			in[j] = a.src.row(s.off + at);
		} else {
			const long long p = place_of(a, r, s.slot, pos);
			if (p < 0) return;
			in[j] = a.rows + p * dim;
		}
		const float g = bf2f(in[j][a.h + stream]);
		float sum = 0;
		for (i32 c = tid; c < a.h; c += THREADS) {
			const float v = bf2f(in[j][c]) * g;
			sum = fmaf(v, v, sum);
		}
		sum = block_sum(sum, red);
		if (tid == 0) gate[j] = g, scale[j] = 1.0f / sqrtf(sum / (float)a.h + a.eps);
	}
	__syncthreads();
	u16* x = a.x.row(r) + stream * a.h;
	for (i32 c = tid; c < a.h; c += THREADS) {
		const float* tap = a.taps + (u64)(stream * a.h + c) * a.k + a.k - 1;
		float sum = 0;
		for (i32 j = 0; j < taps; j++) sum += tap[-j] * norm_apply(bf2f(in[j][c]) * gate[j], scale[j], w[c], a.centered);
		x[c] = f2bf(bf2f(x[c]) + bf2f(in[0][c]) * gate[0] + silu(sum));
	}
	if (stream > 0) return;
	const long long own = place_of(a, r, s.slot, s.start + s.row);
	if (own < 0) return;
	for (i32 c = tid; c < dim; c += THREADS) a.rows[own * dim + c] = a.src.row(r)[c];
}
