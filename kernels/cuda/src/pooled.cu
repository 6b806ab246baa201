// Attention to a window and to keys pooled from groups of positions. A slot keeps rows
// of its last positions in rings; groups stand in pages. Row i of a span is in the
// place of position start + i until Commit moves it.
//
// A span that may be longer than what a ring has beyond the positions in use brings
// the rows that it takes the place of to spare places first, for it may come to nothing
// and be run again: the tag of a place (the position + 1) says whose row it holds, and
// a row that is not in its place is in the spare one.

// Ring says where a ring lies in a slot's memory, in bytes.
struct Ring {
	u64 rows, spare, tags;
	i32 n, line; // places; bytes of a row
};

// PooledLayer is one layer's memory.
struct PooledLayer {
	u64 groups;     // offset in elements of kv: [pages, per_page, cols]
	u64 pending;    // offset in a slot's memory, in bytes: [max_draft+1, cols]
	Ring keys, raw; // BF16 [n, dim], FP32 [n, raw_cols]
	i32 dim, cols, raw_cols, per_page;
	i32 window, ratio, reach, pad;
};

// PooledCache is the memory of all slots.
struct PooledCache {
	u8* rings;
	u64 slot_bytes;
	u16* kv;
	const i32* table;
	i32 slots, slot_pages, pages, max_draft;
};

INLINE u8* slot_at(const PooledCache& c, i32 slot) { return c.rings + (u64)slot * c.slot_bytes; }

INLINE u8* ring_place(u8* slot, const Ring& g, i32 pos) { return slot + g.rows + (u64)(pos % g.n) * g.line; }

// ring_row returns the row of a position that was written before.
INLINE const u8* ring_row(u8* slot, const Ring& g, i32 pos) {
	const i32* tags = (const i32*)(slot + g.tags);
	const u64 at = (u64)(pos % g.n) * g.line;
	return slot + (tags[pos % g.n] == pos + 1 ? g.rows : g.spare) + at;
}

// ring_keep writes n elements of a row, from element at on, to the place of the row of s.
template <class T> INLINE void ring_keep(u8* slot, const Ring& g, const Span& s, i32 max_draft, i32 at, const T* row, i32 n) {
	if (s.row < s.len - g.n) return;
	const i32 pos = s.start + s.row, tid = threadIdx.x;
	i32* tag = (i32*)(slot + g.tags) + pos % g.n;
	T* place = (T*)ring_place(slot, g, pos);
	T* spare = (T*)(slot + g.spare + (u64)(pos % g.n) * g.line);
	const bool save = s.len > max_draft + 1 && *tag <= s.start;
	__syncthreads();
	if (save)
		for (i32 i = tid; i < g.line / (i32)sizeof(T); i += THREADS) spare[i] = place[i];
	__syncthreads();
	for (i32 i = tid; i < n; i += THREADS) place[at + i] = row[i];
	if (tid == 0) *tag = pos + 1;
}

// ancestor returns the row at a position on row i's path.
INLINE i32 ancestor(const Batch& b, const Span& s, i32 i, i32 pos) {
	while (i >= 0 && b.pos.at(s.off + i) > pos) i = b.parent.at(s.off + i);
	return max(i, 0);
}

// group_at returns the place of a group in the pages of a slot; null, and a fault, where
// no page is set.
INLINE u16* group_at(const Env& e, const PooledCache& c, const PooledLayer& l, i32 slot, i32 group, i32 r) {
	const i32 last = (group + 1) * l.ratio - 1, page = last / PAGE;
	const i32 p = page < c.slot_pages ? c.table[(u64)slot * c.slot_pages + page] : -1;
	if (p < 0 || p >= c.pages) {
		fail(e, FAULT_PAGE, r, last, c.slot_pages);
		return nullptr;
	}
	return c.kv + l.groups + ((u64)p * l.per_page + (group - page * PAGE / l.ratio)) * l.cols;
}

INLINE u16* pending_at(const PooledCache& c, const PooledLayer& l, i32 slot, i32 i) {
	return (u16*)(slot_at(c, slot) + l.pending) + (u64)i * l.cols;
}

// group_of returns the place of the group that row i of a span completes.
INLINE u16* group_of(const Env& e, const PooledCache& c, const PooledLayer& l, const Batch& b, const Span& s, i32 i) {
	const i32 pos = b.pos.at(s.off + i);
	if (pos == s.start + i) return group_at(e, c, l, s.slot, pos / l.ratio, s.off + i);
	if (i > c.max_draft) {
		fail(e, FAULT_TREE, s.index, i, s.len);
		return nullptr;
	}
	return pending_at(c, l, s.slot, i);
}

// seen_group returns the place of a group that is complete at the row of s.
INLINE u16* seen_group(const Env& e, const PooledCache& c, const PooledLayer& l, const Batch& b, const Span& s, bool tree, i32 group) {
	const i32 last = (group + 1) * l.ratio - 1;
	if (tree && last >= s.start) return group_of(e, c, l, b, s, ancestor(b, s, s.row, last));
	return group_at(e, c, l, s.slot, group, s.off + s.row);
}

struct PoolArgs {
	Env e;
	View<u16> dst;
	View<float> proj;
	Batch b;
	PooledCache c;
	PooledLayer l;
	const float* bias; // [ratio, n*dim]; null: zeros
	i32 at, dim, n, pad; // first column of a raw row that is meant, width, keys of a position
};
LAYOUT(PoolArgs, pool);

// Pools the groups that rows complete: one block per row, threads take channels.
KERNEL(pool, PoolArgs) {
	const i32 r = blockIdx.x, tid = threadIdx.x, wide = a.n * a.dim;
	u16* dst = a.dst.row(r);
	Span s;
	const bool live = span_of(a.e, a.b, a.c.slots, r, s);
	const bool tree = live && is_tree(a.e, a.b, s);
	if (!live || (s.pos + 1) % a.l.ratio != 0) {
		for (i32 c = tid; c < a.dim; c += THREADS) dst[c] = 0;
		return;
	}
	u8* slot = slot_at(a.c, s.slot);
	const i32 first = s.pos + 1 - a.l.ratio, from = max(0, first - (a.n - 1) * a.l.ratio);
	auto raw = [&](i32 p) -> const float* {
		if (p < s.start) return (const float*)ring_row(slot, a.l.raw, p) + a.at;
		return a.proj.row(s.off + (tree ? ancestor(a.b, s, s.row, p) : p - s.start));
	};
	for (i32 c = tid; c < a.dim; c += THREADS) {
		float top = -INF, sum = 0, acc = 0;
		for (i32 p = from; p <= s.pos; p++) {
			const i32 k = a.n == 2 && p >= first ? c + a.dim : c;
			top = fmaxf(top, raw(p)[wide + k] + (a.bias ? a.bias[(u64)(p % a.l.ratio) * wide + k] : 0.0f));
		}
		for (i32 p = from; p <= s.pos; p++) {
			const i32 k = a.n == 2 && p >= first ? c + a.dim : c;
			const float* x = raw(p);
			const float w = expf(x[wide + k] + (a.bias ? a.bias[(u64)(p % a.l.ratio) * wide + k] : 0.0f) - top);
			sum += w;
			acc += w * x[k];
		}
		dst[c] = f2bf(acc / sum);
	}
}

// Keeps what rows add to groups: one block per row.
KERNEL(pool_keep, PoolArgs) {
	Span s;
	if (!span_of(a.e, a.b, a.c.slots, blockIdx.x, s)) return;
	ring_keep(slot_at(a.c, s.slot), a.l.raw, s, a.c.max_draft, a.at, (const float*)a.proj.row(blockIdx.x), 2 * a.n * a.dim);
}

struct KeepArgs {
	Env e;
	View<u16> src;
	Batch b;
	PooledCache c;
	PooledLayer l;
	i32 at, dim;
};
LAYOUT(KeepArgs, keep);

// Keeps the keys of groups: one block per row.
KERNEL(keep, KeepArgs) {
	Span s;
	if (!span_of(a.e, a.b, a.c.slots, blockIdx.x, s) || (s.pos + 1) % a.l.ratio != 0) return;
	u16* to = group_of(a.e, a.c, a.l, a.b, s, s.row);
	if (!to) return;
	for (i32 i = threadIdx.x; i < a.dim; i += THREADS) to[a.at + i] = a.src.row(blockIdx.x)[i];
}

struct ChooseArgs {
	Env e;
	View<i32> dst, within, best; // the last two may be null
	View<u16> q;
	View<float> weights;
	Batch b;
	PooledCache c;
	PooledLayer l;
	i32 heads, dim, top_k, words;
	i32 blocks, block, pad0, pad1;
};
LAYOUT(ChooseArgs, choose);

// order maps a score to an integer that rises with it; a NaN as minus infinity, both
// zeros alike. 0 is below all of them.
INLINE u32 order(float f) {
	if (f != f) f = -INF;
	const u32 u = __float_as_uint(f + 0.0f);
	return u >> 31 ? ~u : u | 0x80000000u;
}

INLINE bool has(const i32* mask, i32 i) { return mask[i / 32] >> (i % 32) & 1; }

// choose_best marks the k of n with the largest order, of equals the lower; those of
// order 0 are no candidates. Each warp computes the order of one at a time, anew each
// time, so that no memory is needed that grows with n.
template <class Order, class Mark> INLINE void choose_best(i32 n, i32 k, Order value, Mark mark) {
	__shared__ u32 bins[256];
	__shared__ u32 prefix, wanted, candidates;
	const i32 tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
	__syncthreads();
	if (tid == 0) prefix = 0, wanted = k, candidates = 0;
	__syncthreads();
	for (i32 j = warp; j < n; j += WARPS) {
		const u32 o = value(j);
		if (lane == 0 && o != 0) atomicAdd(&candidates, 1u);
	}
	__syncthreads();
	if (candidates <= (u32)k) {
		for (i32 j = warp; j < n; j += WARPS)
			if (value(j) != 0 && lane == 0) mark(j);
		__syncthreads();
		return;
	}
	for (i32 shift = 24; shift >= 0; shift -= 8) {
		for (i32 i = tid; i < 256; i += THREADS) bins[i] = 0;
		__syncthreads();
		for (i32 j = warp; j < n; j += WARPS) {
			const u32 o = value(j);
			if (lane == 0 && o != 0 && (shift == 24 || o >> (shift + 8) == prefix >> (shift + 8))) atomicAdd(&bins[o >> shift & 255], 1u);
		}
		__syncthreads();
		if (tid == 0) {
			i32 i = 255;
			while (i > 0 && bins[i] < wanted) wanted -= bins[i--];
			prefix |= (u32)i << shift;
		}
		__syncthreads();
	}
	for (i32 j = warp; j < n; j += WARPS)
		if (value(j) > prefix && lane == 0) mark(j);
	__syncthreads();
	if (warp == 0) {
		u32 left = wanted;
		for (i32 j = 0; j < n && left > 0; j++)
			if (value(j) == prefix) {
				if (lane == 0) mark(j);
				left--;
			}
	}
	__syncthreads();
}

// One block per row.
KERNEL(choose, ChooseArgs) {
	const i32 r = blockIdx.x, tid = threadIdx.x, lane = tid & 31;
	Span s;
	if (!span_of(a.e, a.b, a.c.slots, r, s)) return;
	const bool tree = is_tree(a.e, a.b, s);
	const i32 n = (s.pos + 1) / a.l.ratio;
	if (n > 32 * a.words) {
		if (tid == 0) fail(a.e, FAULT_MASK, r, n, 32 * a.words);
		return;
	}
	i32 *mask = a.dst.row(r), *best = a.best.p ? a.best.row(r) : nullptr;
	const i32* within = a.within.p ? a.within.row(r) : nullptr;
	for (i32 i = tid; i < a.words; i += THREADS) {
		mask[i] = 0;
		if (best) best[i] = 0;
	}
	__syncthreads();
	const u16* q = a.q.row(r);
	const float* weights = a.weights.row(r);
	auto score = [&](i32 g) -> u32 {
		const u16* key = seen_group(a.e, a.c, a.l, a.b, s, tree, g);
		if (!key) return 0u;
		key += a.l.dim;
		float y = 0;
		for (i32 h = 0; h < a.heads; h++) {
			float dot = 0;
			for (i32 i = lane; i < a.dim; i += 32) dot = fmaf(bf2f(q[h * a.dim + i]), bf2f(key[i]), dot);
			dot = warp_sum(dot);
			y += weights[h] * (dot < 0 ? 0.0f : dot);
		}
		return order(y);
	};
	if (best) {
		const i32 all = (n + a.block - 1) / a.block;
		choose_best(all, a.blocks, [&](i32 b) -> u32 {
			if (b == all - 1) return ~0u;
			u32 top = 0;
			for (i32 g = b * a.block; g < min((b + 1) * a.block, n); g++) top = max(top, score(g));
			return top;
		}, [&](i32 b) {
			for (i32 g = b * a.block; g < min((b + 1) * a.block, n); g++) atomicOr((u32*)&best[g / 32], 1u << g % 32);
		});
	}
	choose_best(n, a.top_k, [&](i32 g) -> u32 { return within && !has(within, g) ? 0u : score(g); },
		[&](i32 g) { atomicOr((u32*)&mask[g / 32], 1u << g % 32); });
}

struct PooledArgs {
	Env e;
	View<u16> dst, q, kv;
	View<i32> chosen; // null: all groups
	Batch b;
	PooledCache c;
	PooledLayer l, g; // of the window, of the groups
	const float* sink; // null: none
	float scale;
	i32 heads, dim, first, words, groups;
	i32 block; // rows of a span see each other
};
LAYOUT(PooledArgs, pooled);

enum { MAX_POOLED = 1024 };

// One block per row and head: grid (rows, heads). Keys are taken in splits of their
// own order, softmax afresh in each, and splits are added as they come.
KERNEL(attend_pooled, PooledArgs) {
	__shared__ const u16* keys[SPLIT];
	__shared__ float p[SPLIT], red[THREADS], query[MAX_POOLED];
	__shared__ i32 count, group;
	const i32 r = blockIdx.x, h = blockIdx.y, tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
	Span s;
	if (!span_of(a.e, a.b, a.c.slots, r, s)) return;
	const bool tree = is_tree(a.e, a.b, s);
	u8* slot = slot_at(a.c, s.slot);
	const i32 end = a.block ? s.start + s.len : s.pos + 1; // of the keys of the window and the rows
	const i32 low = max(a.first, (a.block ? s.start : end) - a.l.window), window = max(0, end - low);
	const i32 groups = a.groups ? (s.pos + 1) / a.g.ratio : 0;
	const i32* mask = a.chosen.p ? a.chosen.row(r) : nullptr;
	const u16* q = a.q.row(r) + h * a.dim;
	for (i32 i = tid; i < a.dim; i += THREADS) query[i] = bf2f(q[i]);
	float out[MAX_POOLED / THREADS];
	for (i32 i = 0; i < MAX_POOLED / THREADS; i++) out[i] = 0;
	float top = a.sink ? a.sink[h] : -INF, sum = a.sink ? 1.0f : 0.0f;
	i32 done = 0; // keys of the window that were taken
	u64 visited = 0;
	if (tid == 0) group = 0;
	while (true) {
		__syncthreads();
		// The keys of the split: what is left of the window, then groups, 32 at a time.
		const i32 w = min(window - done, SPLIT);
		for (i32 i = tid; i < w; i += THREADS) {
			const i32 pos = low + done + i;
			if (pos < s.start) keys[i] = (const u16*)ring_row(slot, a.l.keys, pos);
			else keys[i] = a.kv.row(s.off + (tree ? ancestor(a.b, s, s.row, pos) : pos - s.start));
		}
		if (warp == 0) {
			i32 n = w, g = group;
			while (n + 32 <= SPLIT && g < groups && done + w == window) {
				const i32 mine = g + lane;
				const bool in = mine < groups && (!mask || (mine < 32 * a.words && has(mask, mine)));
				const u32 votes = __ballot_sync(~0u, in);
				if (in) keys[n + __popc(votes & ((1u << lane) - 1))] = seen_group(a.e, a.c, a.g, a.b, s, tree, mine);
				n += __popc(votes);
				g += 32;
			}
			if (lane == 0) count = n, group = g;
		}
		__syncthreads();
		done += w;
		const i32 n = count;
		const bool last = done == window && group >= groups;
		visited += n;
		if (n > 0) {
			for (i32 k = warp; k < n; k += WARPS) {
				float dot = 0;
				if (keys[k])
					for (i32 i = lane; i < a.dim; i += 32) dot = fmaf(query[i], bf2f(keys[k][i]), dot);
				dot = warp_sum(dot);
				if (lane == 0) p[k] = dot * a.scale;
			}
			__syncthreads();
			float t = -INF, z = 0;
			for (i32 k = tid; k < n; k += THREADS) t = fmaxf(t, p[k]);
			t = block_max(t, red);
			for (i32 k = tid; k < n; k += THREADS) z += p[k] = expf(p[k] - t);
			z = block_sum(z, red);
			const float above = fmaxf(top, t), old = expf(top - above), add = expf(t - above);
			for (i32 i = 0, c = tid; c < a.dim; i++, c += THREADS) {
				float part = 0;
				for (i32 k = 0; k < n; k++)
					if (keys[k]) part = fmaf(p[k], bf2f(keys[k][c]), part);
				out[i] = out[i] * old + part * add;
			}
			sum = sum * old + z * add;
			top = above;
		}
		if (last) break;
	}
	__syncthreads();
	u16* dst = a.dst.row(r) + h * a.dim;
	for (i32 i = 0, c = tid; c < a.dim; i++, c += THREADS) dst[c] = f2bf(sum > 0 ? out[i] / sum : 0.0f);
	if (tid == 0 && h == 0) {
		atomicAdd(&a.e.work[WORK_ATTEND_ROWS], 1ull);
		atomicAdd(&a.e.work[WORK_KV_TOKENS], visited);
	}
}

// Keeps the window's keys: one block per row.
KERNEL(pooled_keep, PooledArgs) {
	Span s;
	if (!span_of(a.e, a.b, a.c.slots, blockIdx.x, s)) return;
	ring_keep(slot_at(a.c, s.slot), a.l.keys, s, a.c.max_draft, 0, (const u16*)a.kv.row(blockIdx.x), a.dim);
}

struct PooledCommitArgs {
	Env e;
	Batch b;
	Table kept, path;
	PooledCache c;
	const PooledLayer* layers;
};
LAYOUT(PooledCommitArgs, pooled_commit);

// Moves what the layers hold of a path to the places of its positions: grid (layers,
// spans). Threads move words of their own, in order of position.
KERNEL(pooled_commit, PooledCommitArgs) {
	__shared__ i32 path[WINDOW], n;
	const i32 tid = threadIdx.x;
	const PooledLayer l = a.layers[blockIdx.x];
	Span s;
	if (tid == 0) {
		n = 0;
		const i32 k = span_at(a.e, a.b, a.c.slots, blockIdx.y, s) ? a.kept.at(blockIdx.y) : 0;
		if (k > 0 && k <= s.len && s.len <= WINDOW) {
			i32 before = -1;
			n = k;
			for (i32 j = 0; j < k && n > 0; j++) {
				const i32 i = a.path.at(s.off + j);
				if (i <= before || i >= s.len || a.b.parent.at(s.off + i) != before) n = 0; // commit says so
				else path[j] = before = i;
			}
		}
	}
	__syncthreads();
	if (n == 0 || !span_at(a.e, a.b, a.c.slots, blockIdx.y, s)) return;
	u8* slot = slot_at(a.c, s.slot);
	for (i32 j = 0; j < n; j++) {
		const i32 i = path[j], pos = s.start + j;
		if (i == j) continue;
		const Ring* rings[2] = {&l.keys, &l.raw};
		for (i32 x = 0; x < 2; x++) {
			if (rings[x]->n == 0) continue;
			u32 *to = (u32*)ring_place(slot, *rings[x], pos), *from = (u32*)ring_place(slot, *rings[x], s.start + i);
			for (i32 c = tid; c < rings[x]->line / 4; c += THREADS) to[c] = from[c];
		}
		if (l.ratio == 0 || (pos + 1) % l.ratio != 0) continue;
		u16* to = group_at(a.e, a.c, l, s.slot, pos / l.ratio, s.off + i);
		const u16* from = pending_at(a.c, l, s.slot, i);
		if (!to) return;
		for (i32 c = tid; c < l.cols; c += THREADS) to[c] = from[c];
	}
}

struct RingCopyArgs {
	Env e;
	i32 *length, *saved; // of the slot, of the snapshot
	u32 *slot, *snap;
	u64 words;
	i32 to, restore, index, pad;
};
LAYOUT(RingCopyArgs, ring_copy);

// Copies a slot's rings to a snapshot or back: grid (chunks).
KERNEL(ring_copy, RingCopyArgs) {
	const i32 n = a.restore ? a.to : *a.length;
	if (n % WINDOW != 0) {
		fail(a.e, FAULT_WINDOW, a.index, n, WINDOW);
		return;
	}
	if (a.restore && *a.saved != n) {
		fail(a.e, FAULT_SAVED, a.index, *a.saved, n);
		return;
	}
	const u64 step = (u64)gridDim.x * THREADS;
	for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < a.words; i += step) {
		if (a.restore) a.slot[i] = a.snap[i];
		else a.snap[i] = a.slot[i];
	}
}
