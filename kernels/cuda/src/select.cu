// The choice of keys for sparse attention. A block chooses for one row: it finds the
// score of the last key that is chosen bit by bit, eight at a time, scoring all keys
// anew each time, so that no memory is needed that grows with the sequence.

enum { MAX_INDEX = 8192, MAX_INDEX_HEAD = 640 };

struct SelectArgs {
	Env e;
	Table dst; // masks, dst.rows words each
	View<u16> proj;
	View<float> weights;
	Batch b;
	u16* keys; // this layer: [pages, PAGE, dim]
	const i32* table;
	const float* rope;
	i32 slots, slot_pages, pages;
	i32 heads, dim, top_k;
	i32 rotary, rope_rows, first;
	i32 pad;
};
LAYOUT(SelectArgs, select);

// rotate writes a head of x to out as it enters products, by one warp.
INLINE void rotate(const SelectArgs& a, u16* out, const u16* x, i32 r, i32 pos, i32 lane) {
	const i32 half = a.rotary / 2;
	for (i32 i = lane + a.rotary; i < a.dim; i += 32) out[i] = x[i];
	if (half > 0 && pos >= a.rope_rows) {
		if (lane == 0) fail(a.e, FAULT_ROPE, r, pos, a.rope_rows);
		pos = a.rope_rows - 1;
	}
	const float* cs = a.rope + (u64)pos * a.rotary;
	for (i32 i = lane; i < half; i += 32) {
		const float c = cs[i], n = cs[half + i], lo = bf2f(x[i]), hi = bf2f(x[half + i]);
		out[i] = f2bf(lo * c - hi * n);
		out[half + i] = f2bf(hi * c + lo * n);
	}
	__syncwarp();
}

INLINE long long index_at(const SelectArgs& a, i32 slot, i32 pos) {
	const i32 i = pos / PAGE, page = i < a.slot_pages ? a.table[(u64)slot * a.slot_pages + i] : -1;
	if (page < 0 || page >= a.pages) return -1;
	return ((long long)page * PAGE + pos % PAGE) * a.dim;
}

// Appends keys at the rows' places: grid (rows), one warp's work.
KERNEL(select_append, SelectArgs) {
	const i32 r = blockIdx.x, lane = threadIdx.x;
	Span s;
	if (lane >= 32 || !span_of(a.e, a.b, a.slots, r, s)) return;
	const long long at = index_at(a, s.slot, s.start + s.row);
	if (at < 0) {
		if (lane == 0) fail(a.e, FAULT_PAGE, r, s.start + s.row, a.slot_pages);
		return;
	}
	rotate(a, a.keys + at, a.proj.row(r) + a.heads * a.dim, r, s.pos, lane);
}

// order maps a score to an integer that rises with it; a NaN as minus infinity, both
// zeros alike.
INLINE u32 order(float f) {
	if (f != f) f = -INF;
	const u32 u = __float_as_uint(f + 0.0f);
	return u >> 31 ? ~u : u | 0x80000000u;
}

KERNEL(select_keys, SelectArgs) {
	__shared__ u16 q[MAX_INDEX];
	__shared__ u32 bins[256];
	__shared__ i32 path[WINDOW];
	__shared__ u32 prefix, wanted;
	const i32 r = blockIdx.x, tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
	Span s;
	if (!span_of(a.e, a.b, a.slots, r, s)) return;
	const i32 top = s.pos + 1, first = min(a.first, top);
	i32* mask = a.dst.row(r);
	if (top > 32 * a.dst.rows) {
		if (tid == 0) fail(a.e, FAULT_MASK, r, s.pos, 32 * a.dst.rows);
		return;
	}
	const bool tree = is_tree(a.e, a.b, s);
	if (tree && tid == 0) {
		i32 i = s.row;
		for (i32 depth = s.pos - s.start; depth >= 0; depth--) {
			path[depth] = i;
			i = max(parent_of(a.e, a.b, s, i), 0);
		}
	}
	for (i32 i = tid; i < a.dst.rows; i += THREADS) mask[i] = 0;
	for (i32 h = warp; h < a.heads; h += WARPS) rotate(a, q + h * a.dim, a.proj.row(r) + h * a.dim, r, s.pos, lane);
	__syncthreads();
	if (top - first <= a.top_k) {
		for (i32 j = first + tid; j < top; j += THREADS) atomicOr((u32*)&mask[j / 32], 1u << j % 32);
		return;
	}
	const float* weights = a.weights.row(r);
	const auto score = [&](i32 j) {
		const long long at = index_at(a, s.slot, tree && j >= s.start ? s.start + path[j - s.start] : j);
		if (at < 0) {
			if (lane == 0) fail(a.e, FAULT_PAGE, r, j, a.slot_pages);
			return 0u;
		}
		float y = 0;
		for (i32 h = 0; h < a.heads; h++) {
			float dot = 0;
			for (i32 i = lane; i < a.dim; i += 32) dot = fmaf(bf2f(q[h * a.dim + i]), bf2f(a.keys[at + i]), dot);
			dot = warp_sum(dot);
			y += weights[h] * (dot < 0 ? 0.0f : dot);
		}
		return order(y);
	};
	if (tid == 0) prefix = 0, wanted = a.top_k;
	for (i32 shift = 24; shift >= 0; shift -= 8) {
		for (i32 i = tid; i < 256; i += THREADS) bins[i] = 0;
		__syncthreads();
		for (i32 j = first + warp; j < top; j += WARPS) {
			const u32 o = score(j);
			if (lane == 0 && (shift == 24 || o >> (shift + 8) == prefix >> (shift + 8))) atomicAdd(&bins[o >> shift & 255], 1u);
		}
		__syncthreads();
		if (tid == 0) {
			i32 i = 255;
			while (i > 0 && bins[i] < wanted) wanted -= bins[i--];
			prefix |= (u32)i << shift;
		}
		__syncthreads();
	}
	// prefix is the score of the last key that is chosen, and wanted of those with
	// that score are, the lower first.
	for (i32 j = first + warp; j < top; j += WARPS)
		if (score(j) > prefix && lane == 0) atomicOr((u32*)&mask[j / 32], 1u << j % 32);
	__syncthreads();
	if (warp != 0) return;
	u32 left = wanted;
	for (i32 j = first; j < top && left > 0; j++)
		if (score(j) == prefix) {
			if (lane == 0) atomicOr((u32*)&mask[j / 32], 1u << j % 32);
			left--;
		}
}
