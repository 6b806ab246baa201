#line 2 "attend.cuh"
// Attention over paged keys and values. Keys are read in splits at absolute
// positions; softmax is computed afresh in each split and the splits are combined
// upwards. Row i of a span is kept in the place of position start + i until it is
// committed; a row reads the committed prefix at its positions and its own path at
// the places of the path's rows, which in a chain are their positions.

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
	float* parts; // of attend_tiles: what splits leave for attend_fold, part_slots of part_floats
	i32* plan;    // two for each span: its splits, 0 where it is not cut, and its first slot
	i32 part_slots, part_floats, stages, queries; // queries: append leaves them in dst
	i32 tile_rows, tile_dim; // of attend_tiles
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

INLINE const u16* query_in(const AttendArgs& a, i32 r, i32 h) { return a.proj.row(r) + h * (a.gated ? 2 : 1) * a.dim; }
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
