// The choice of keys for sparse attention by blocks of them. A block of threads chooses
// for one row, as in select.cu: bit by bit, making the keys of all blocks anew each
// time, so that no memory is needed that grows with the sequence.

enum { MAX_INDEX = 8192, MAX_INDEX_HEAD = 640 };

struct BlocksArgs {
	Env e;
	Table dst; // masks, dst.rows words each
	View<u16> proj;
	Batch b;
	u16* keys; // this layer: [pages, PAGE, dim]
	const i32* table;
	const float *rope, *qn, *kn;
	float q_eps, k_eps;
	i32 slots, slot_pages, pages;
	i32 heads, dim, top_k, ratio;
	i32 rotary, rope_rows, first;
	i32 q_centered, k_centered;
};
LAYOUT(BlocksArgs, select_blocks);

INLINE long long key_at(const BlocksArgs& a, i32 slot, i32 pos) {
	const i32 i = pos / PAGE, page = i < a.slot_pages ? a.table[(u64)slot * a.slot_pages + i] : -1;
	if (page < 0 || page >= a.pages) return -1;
	return ((long long)page * PAGE + pos % PAGE) * a.dim;
}

// Appends keys at the rows' places: grid (rows).
KERNEL(blocks_append, BlocksArgs) {
	const i32 r = blockIdx.x;
	Span s;
	if (!span_of(a.e, a.b, a.slots, r, s)) return;
	const long long at = key_at(a, s.slot, s.start + s.row);
	if (at < 0) {
		if (threadIdx.x == 0) fail(a.e, FAULT_PAGE, r, s.start + s.row, a.slot_pages);
		return;
	}
	for (i32 i = threadIdx.x; i < a.dim; i += THREADS) a.keys[at + i] = a.proj.row(r)[a.heads * a.dim + i];
}

// place norms a head of x, rotates it to a position and rounds it to out, by one warp;
// x, FP32 in shared memory, is written over.
INLINE void place(const BlocksArgs& a, u16* out, float* x, const float* w, float eps, i32 centered, i32 r, i32 pos, i32 lane) {
	if (w) {
		const float s = rms_scale(a.dim, eps, lane, [=](i32 i) { return x[i]; });
		for (i32 i = lane; i < a.dim; i += 32) x[i] = norm_apply(x[i], s, w[i], centered);
	}
	__syncwarp();
	const i32 half = a.rotary / 2;
	for (i32 i = lane + a.rotary; i < a.dim; i += 32) out[i] = f2bf(x[i]);
	if (half > 0 && pos >= a.rope_rows) {
		if (lane == 0) fail(a.e, FAULT_ROPE, r, pos, a.rope_rows);
		pos = a.rope_rows - 1;
	}
	const float* cs = a.rope + (u64)pos * a.rotary;
	for (i32 i = lane; i < half; i += 32) {
		const float c = cs[i], n = cs[half + i], lo = x[i], hi = x[half + i];
		out[i] = f2bf(lo * c - hi * n);
		out[half + i] = f2bf(hi * c + lo * n);
	}
	__syncwarp();
}

// order maps a score to an integer that rises with it; a NaN as minus infinity, both
// zeros alike.
INLINE u32 order(float f) {
	if (f != f) f = -INF;
	const u32 u = __float_as_uint(f + 0.0f);
	return u >> 31 ? ~u : u | 0x80000000u;
}

KERNEL(select_blocks, BlocksArgs) {
	__shared__ u16 q[MAX_INDEX], key[WARPS][MAX_INDEX_HEAD];
	__shared__ float wide[WARPS][MAX_INDEX_HEAD];
	__shared__ u32 bins[256];
	__shared__ i32 path[WINDOW];
	__shared__ u32 prefix, wanted;
	const i32 r = blockIdx.x, tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
	Span s;
	if (!span_of(a.e, a.b, a.slots, r, s)) return;
	const i32 top = s.pos + 1, blocks = max(top - a.first, 0) / a.ratio;
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
	for (i32 h = warp; h < a.heads; h += WARPS) {
		for (i32 i = lane; i < a.dim; i += 32) wide[warp][i] = bf2f(a.proj.row(r)[h * a.dim + i]);
		__syncwarp();
		place(a, q + h * a.dim, wide[warp], a.qn, a.q_eps, a.q_centered, r, s.pos, lane);
	}
	__syncthreads();
	const auto set = [&](i32 j) { atomicOr((u32*)&mask[j / 32], 1u << j % 32); };
	for (i32 j = a.first + blocks * a.ratio + tid; j < top; j += THREADS) set(j);
	if (blocks <= a.top_k) {
		for (i32 j = a.first + tid; j < a.first + blocks * a.ratio; j += THREADS) set(j);
		return;
	}
	const auto score = [&](i32 b) {
		const i32 at = a.first + b * a.ratio;
		for (i32 i = lane; i < a.dim; i += 32) {
			float sum = 0;
			for (i32 j = at; j < at + a.ratio; j++) {
				const long long k = key_at(a, s.slot, tree && j >= s.start ? s.start + path[j - s.start] : j);
				if (k < 0) fail(a.e, FAULT_PAGE, r, j, a.slot_pages);
				else sum += bf2f(a.keys[k + i]);
			}
			wide[warp][i] = bf2f(f2bf(sum * (1.0f / (float)a.ratio)));
		}
		__syncwarp();
		place(a, key[warp], wide[warp], a.kn, a.k_eps, a.k_centered, r, at, lane);
		float y = 0;
		for (i32 h = 0; h < a.heads; h++) {
			float dot = 0;
			for (i32 i = lane; i < a.dim; i += 32) dot = fmaf(bf2f(q[h * a.dim + i]), bf2f(key[warp][i]), dot);
			dot = warp_sum(dot);
			y += dot < 0 ? 0.0f : dot;
		}
		__syncwarp();
		return order(y);
	};
	const auto take = [&](i32 b) {
		for (i32 j = a.first + b * a.ratio; j < a.first + (b + 1) * a.ratio; j++) set(j);
	};
	if (tid == 0) prefix = 0, wanted = a.top_k;
	for (i32 shift = 24; shift >= 0; shift -= 8) {
		for (i32 i = tid; i < 256; i += THREADS) bins[i] = 0;
		__syncthreads();
		for (i32 b = warp; b < blocks; b += WARPS) {
			const u32 o = score(b);
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
	// prefix is the score of the last block that is chosen, and wanted of those with
	// that score are, the lower first.
	for (i32 b = warp; b < blocks; b += WARPS)
		if (score(b) > prefix && lane == 0) take(b);
	__syncthreads();
	if (warp != 0) return;
	u32 left = wanted;
	for (i32 b = 0; b < blocks && left > 0; b++)
		if (score(b) == prefix) {
			if (lane == 0) take(b);
			left--;
		}
}
