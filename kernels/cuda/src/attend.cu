// Attention over paged keys and values. Keys are read in splits of SPLIT at
// absolute positions; softmax is computed afresh in each split and the splits
// are combined upwards. Row i of a span is kept in the place of position
// start + i until it is committed; a row reads the committed prefix at its
// positions and its own path at the places of the path's rows, which in a chain
// are their positions.

enum { MAX_HEAD = 640, PARTS = MAX_HEAD / THREADS };

struct AttendArgs {
	Env e;
	View<u16> dst, proj;
	Batch b;
	u16 *keys, *values; // this layer: [pages, PAGE, kv_heads, dim] and [.., vdim]
	const i32* table;   // [slots, slot_pages]
	const float *qn, *kn, *rope;
	float scale, q_eps, k_eps;
	i32 slots, slot_pages, pages;
	i32 q_heads, kv_heads, dim, gated, q_centered, k_centered;
	i32 rotary, rope_rows, first;
	i32 vdim, pad;
	Table chosen; // masks of keys, chosen.rows words each; p null: all keys
};
LAYOUT(AttendArgs, attend);

// head_row forms one head of a projection row in out, by one warp: norm,
// rotation, one rounding to BF16.
INLINE void head_row(const AttendArgs& a, float* out, const u16* x, i32 r, i32 pos, bool query, i32 lane) {
	const i32 d = a.dim, half = a.rotary / 2;
	const float* w = query ? a.qn : a.kn;
	float s = 1.0f;
	if (w) s = rms_scale(d, query ? a.q_eps : a.k_eps, lane, [=](i32 i) { return bf2f(x[i]); });
	__syncwarp();
	for (i32 i = lane; i < d; i += 32) {
		float v = bf2f(x[i]);
		out[i] = w ? norm_apply(v, s, w[i], query ? a.q_centered : a.k_centered) : v;
	}
	__syncwarp();
	if (a.rope) {
		if (pos >= a.rope_rows) {
			if (lane == 0) fail(a.e, FAULT_ROPE, r, pos, a.rope_rows);
			pos = a.rope_rows - 1;
		}
		const float* cs = a.rope + (u64)pos * a.rotary;
		for (i32 i = lane; i < half; i += 32) {
			float c = cs[i], n = cs[half + i], lo = out[i], hi = out[half + i];
			out[i] = lo * c - hi * n;
			out[half + i] = hi * c + lo * n;
		}
		__syncwarp();
	}
	for (i32 i = lane; i < d; i += 32) out[i] = bf2f(f2bf(out[i]));
	__syncwarp();
}

INLINE const u16* key_in(const AttendArgs& a, i32 r, i32 kvh) {
	return a.proj.row(r) + (a.q_heads * (a.gated ? 2 : 1) + kvh) * a.dim;
}
INLINE const u16* value_in(const AttendArgs& a, i32 r, i32 kvh) { return key_in(a, r, a.kv_heads) + kvh * a.vdim; }

// cached returns the index of a position's head among those of keys and of values,
// or -1 if the position has no page.
INLINE long long cached(const AttendArgs& a, i32 slot, i32 pos, i32 kvh) {
	i32 i = pos / PAGE;
	i32 page = i < a.slot_pages ? a.table[(u64)slot * a.slot_pages + i] : -1;
	if (page < 0 || page >= a.pages) return -1;
	return ((long long)page * PAGE + pos % PAGE) * a.kv_heads + kvh;
}

// Appends keys and values at the rows' places: grid (rows, kv heads), one warp's
// work.
KERNEL(attend_append, AttendArgs) {
	__shared__ float buf[MAX_HEAD];
	const i32 r = blockIdx.x, kvh = blockIdx.y, lane = threadIdx.x;
	Span s;
	if (lane >= 32 || !span_of(a.e, a.b, a.slots, r, s)) return;
	long long at = cached(a, s.slot, s.start + s.row, kvh);
	if (at < 0) {
		if (lane == 0) fail(a.e, FAULT_PAGE, r, s.start + s.row, a.slot_pages);
		return;
	}
	head_row(a, buf, key_in(a, r, kvh), r, s.pos, false, lane);
	const u16* v = value_in(a, r, kvh);
	for (i32 i = lane; i < a.dim; i += 32) a.keys[at * a.dim + i] = f2bf(buf[i]);
	for (i32 i = lane; i < a.vdim; i += 32) a.values[at * a.vdim + i] = v[i];
}

// One block per (row, query head).
KERNEL(attend, AttendArgs) {
	__shared__ float q[MAX_HEAD], p[SPLIT], red[THREADS];
	__shared__ i32 path[WINDOW];
	const i32 r = blockIdx.x, h = blockIdx.y, tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, d = a.dim;
	Span s;
	if (!span_of(a.e, a.b, a.slots, r, s)) return;
	const i32 kvh = h / (a.q_heads / a.kv_heads), pos = s.pos;
	const bool tree = is_tree(a.e, a.b, s);
	if (tree && tid == 0) {
		i32 i = s.row;
		for (i32 depth = pos - s.start; depth >= 0; depth--) {
			path[depth] = i;
			i = max(parent_of(a.e, a.b, s, i), 0);
		}
	}
	const i32* mask = a.chosen.p ? a.chosen.row(r) : nullptr;
	if (mask && pos >= 32 * a.chosen.rows) {
		if (tid == 0) fail(a.e, FAULT_MASK, r, pos, 32 * a.chosen.rows);
		return;
	}
	const auto seen = [&](i32 j) { return !mask || (mask[j / 32] >> (j % 32) & 1); };
	const auto place = [&](i32 j) { return tree && j >= s.start ? s.start + path[j - s.start] : j; };
	if (h == 0 && tid == 0) {
		atomicAdd(&a.e.work[WORK_ATTEND_ROWS], 1ull);
		atomicAdd(&a.e.work[WORK_KV_TOKENS], (u64)max(0, pos + 1 - a.first));
	}
	const u16* qx = a.proj.row(r) + h * (a.gated ? 2 : 1) * d;
	if (warp == 0) head_row(a, q, qx, r, pos, true, lane);
	__syncthreads();

	float m = 0, l = 0, o[PARTS] = {}; // of channels tid, tid + THREADS, ...
	bool any = false;
	for (i32 s0 = a.first / SPLIT * SPLIT; s0 <= pos; s0 += SPLIT) {
		const i32 lo = max(s0, a.first), hi = min(s0 + SPLIT, pos + 1);
		for (i32 j = lo + warp; j < hi; j += WARPS) {
			float dot = 0;
			const long long at = cached(a, s.slot, place(j), kvh);
			if (at < 0 && lane == 0) fail(a.e, FAULT_PAGE, r, place(j), a.slot_pages);
			if (at >= 0)
				for (i32 i = lane; i < d; i += 32) dot = fmaf(q[i], bf2f(a.keys[at * d + i]), dot);
			dot = warp_sum(dot);
			if (lane == 0) p[j - s0] = seen(j) ? dot * a.scale : -INF;
		}
		__syncthreads();
		float top = -INF;
		for (i32 j = tid; j < hi - s0; j += THREADS)
			if (j >= lo - s0) top = fmaxf(top, p[j]);
		top = block_max(top, red);
		if (mask && top == -INF) continue;
		float sum = 0;
		for (i32 j = tid; j < hi - s0; j += THREADS) {
			if (j < lo - s0) continue;
			float e = expf(p[j] - top);
			p[j] = e;
			sum += e;
		}
		sum = block_sum(sum, red);
		float acc[PARTS] = {};
		for (i32 j = lo; j < hi; j++) {
			const long long at = cached(a, s.slot, place(j), kvh);
			if (at < 0 || !seen(j)) continue;
			const u16* v = a.values + at * a.vdim;
			const float w = p[j - s0];
#pragma unroll
			for (int c = 0; c < PARTS; c++)
				if (tid + c * THREADS < a.vdim) acc[c] = fmaf(w, bf2f(v[tid + c * THREADS]), acc[c]);
		}
		if (!any) {
			m = top, l = sum;
			for (int c = 0; c < PARTS; c++) o[c] = acc[c];
			any = true;
		} else {
			float top2 = fmaxf(m, top), old = expf(m - top2), now = expf(top - top2);
			l = l * old + sum * now;
			for (int c = 0; c < PARTS; c++) o[c] = o[c] * old + acc[c] * now;
			m = top2;
		}
		__syncthreads();
	}
	u16* dst = a.dst.row(r) + h * a.vdim;
	for (int c = 0; c < PARTS; c++) {
		i32 i = tid + c * THREADS;
		if (i >= a.vdim) break;
		float y = any ? o[c] / l : 0.0f;
		if (a.gated) y *= sigmoid(bf2f(qx[d + i]));
		dst[i] = f2bf(y);
	}
}
