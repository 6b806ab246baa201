// Attention on tensor cores. A row of a tile of queries is one head of one row of a
// span; the heads that share a KV head, of several rows, fill a tile, so that keys and
// values are read once for them. Keys come in tiles of TILE, which are pages.
//
// Per row of a tile, in each split: online softmax over its tiles upwards, P rounded
// to BF16, P V and the sum of P by MMA steps of 16 keys upwards on accumulators that
// every tile rescales. Splits are folded upwards. A row's bits depend on its keys
// alone: not on its place in a tile, nor on whether one block walks all splits of
// the row or several walk one each and the last to arrive folds what they left.

enum { TILE = 64, TILE_PITCH = TILE + 8 };

// Splits are 128 keys long up to position 1024, 256 up to 4096, then 512: short
// sequences are spread over more blocks, long ones leave less to fold.
INLINE i32 split_of(i32 pos) { return pos < 1024 ? pos / 128 : pos < 4096 ? 4 + pos / 256 : 12 + pos / 512; }
INLINE i32 split_begin(i32 s) { return s < 8 ? s * 128 : s < 20 ? (s - 4) * 256 : (s - 12) * 512; }

INLINE void mma(float* c, const u32* a, u32 b0, u32 b1) {
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
	             : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
	             : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

INLINE void load4(u32* r, const u16* p) {
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_at(p)) : "memory");
}

INLINE void load4_turned(u32* r, const u16* p) {
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_at(p)) : "memory");
}

INLINE float power2(float x) {
	float y;
	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

// pair rounds two numbers to BF16, lo first.
INLINE u32 pair(float lo, float hi) {
	u32 y;
	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(hi), "f"(lo));
	return y;
}

// Fold is a row's softmax over several splits.
struct Fold { float old, now; };

// fold adds a split of maximum top to a maximum, and says how to weigh the two.
INLINE Fold fold(float& m, float top) {
	const float both = fmaxf(m, top), base = both == -INF ? 0.0f : both;
	const Fold f = {power2(m - base), power2(top - base)};
	m = both;
	return f;
}

// Plan is how a launch cuts its spans into items, the same in every block.
struct Plan {
	i32* ends;  // items up to and with each span's
	i32* info;  // splits of an item set that is cut, 0 where one block walks all; TREE
	i32* parts; // first slot of parts
	i32 run;    // splits that follow each other and are one block's
};
enum { TREE = 1 << 30 };

// Item is a tile of queries with the keys that one block walks for it.
struct Item {
	Span s;
	bool tree;
	i32 kvh, group, split, run, splits, slot; // run splits from split on; splits 0: all keys
	i32 first, last; // rows of the span
};

template <int ROWS> INLINE i32 groups_of(const AttendArgs& a, const Span& s, bool tree) {
	return tree ? s.len : (s.len * (a.q_heads / a.kv_heads) + ROWS - 1) / ROWS;
}

// scan replaces n values by their sums from the first on, by one warp.
INLINE void scan(i32* v, i32 n, i32 lane) {
	i32 before = 0;
	for (i32 i0 = 0; i0 < n; i0 += 32) {
		const i32 i = i0 + lane;
		i32 x = i < n ? v[i] : 0;
		for (i32 o = 1; o < 32; o *= 2) {
			const i32 y = __shfl_up_sync(~0u, x, o);
			if (lane >= o) x += y;
		}
		x += before;
		if (i < n) v[i] = x;
		before = __shfl_sync(~0u, x, 31);
	}
}

// make_plan: a span is cut into splits if its keys are more than a block's even
// share and there is room for what they leave. A block walks a run of splits, without a
// pause between them.
enum { LONGEST_RUN = 8 };
INLINE i32 runs_of(i32 splits, i32 run) { return (splits + run - 1) / run; }

template <int ROWS> INLINE void make_plan(const AttendArgs& a, Plan& p) {
	__shared__ u64 keys;
	const i32 tid = threadIdx.x, n = a.b.spans;
	if (tid == 0) keys = 0;
	__syncthreads();
	u64 own = 0;
	for (i32 i = tid; i < n; i += THREADS) {
		Span s;
		p.info[i] = p.parts[i] = p.ends[i] = 0;
		if (!span_at(a.e, a.b, a.slots, i, s)) continue;
		bool tree = false;
		for (i32 j = 0; j < s.len && s.len <= WINDOW; j++) tree |= a.b.parent.at(s.off + j) != j - 1;
		const i32 groups = groups_of<ROWS>(a, s, tree), last = s.start + s.len - 1;
		const i32 splits = last < a.first ? 1 : split_of(last) - split_of(a.first) + 1;
		p.info[i] = splits | (tree ? TREE : 0);
		p.ends[i] = groups;
		own += (u64)groups * a.kv_heads * (last + 1);
	}
	atomicAdd(&keys, own);
	__syncthreads();
	const u64 share = keys / (2 * gridDim.x);
	const auto wanted = [&](i32 i) { // slots of parts
		const i32 splits = p.info[i] & ~TREE;
		return splits > 1 && (u64)(a.b.start.at(i) + a.b.len.at(i)) > share ? splits * p.ends[i] * a.kv_heads : 0;
	};
	for (i32 i = tid; i < n; i += THREADS) p.parts[i] = wanted(i);
	__syncthreads();
	if (tid < 32) scan(p.parts, n, tid);
	__syncthreads();
	p.run = min(max((p.parts[n - 1] + (i32)gridDim.x - 1) / (i32)gridDim.x, 1), (i32)LONGEST_RUN);
	__syncthreads();
	for (i32 i = tid; i < n; i += THREADS) {
		const i32 slots = wanted(i), sets = p.ends[i] * a.kv_heads;
		const bool cut = slots > 0 && p.parts[i] <= a.part_slots;
		p.parts[i] -= slots;
		p.ends[i] = cut ? sets * runs_of(p.info[i] & ~TREE, p.run) : sets;
		p.info[i] = (p.info[i] & TREE) | (cut ? p.info[i] & ~TREE : 0);
	}
	__syncthreads();
	for (i32 i = tid; i < n && blockIdx.x == 0; i += THREADS) {
		a.plan[2 * i] = p.info[i];
		a.plan[2 * i + 1] = p.parts[i];
	}
	if (tid < 32) scan(p.ends, n, tid);
	__syncthreads();
}

// find returns item i of a plan.
template <int ROWS> INLINE Item find(const AttendArgs& a, const Plan& p, i32 i) {
	i32 lo = 0, hi = a.b.spans - 1;
	while (lo < hi) {
		const i32 mid = (lo + hi) / 2;
		if (p.ends[mid] > i) hi = mid;
		else lo = mid + 1;
	}
	Item t;
	span_at(a.e, a.b, a.slots, lo, t.s);
	t.tree = p.info[lo] & TREE;
	t.splits = p.info[lo] & ~TREE;
	i -= lo > 0 ? p.ends[lo - 1] : 0;
	const i32 each = t.splits > 0 ? runs_of(t.splits, p.run) : 1, set = i / each;
	t.split = i % each * p.run;
	t.run = min(p.run, t.splits - t.split);
	t.kvh = set % a.kv_heads;
	t.group = set / a.kv_heads;
	t.slot = p.parts[lo] + set * t.splits;
	const i32 heads = a.q_heads / a.kv_heads;
	t.first = t.tree ? t.group : t.group * ROWS / heads;
	t.last = t.tree ? t.group : min((t.group * ROWS + ROWS - 1) / heads, t.s.len - 1);
	return t;
}

// row_at returns the row of the span, and the head, of row p of an item's tile; -1
// if there is none.
template <int ROWS> INLINE i32 row_at(const AttendArgs& a, const Item& t, i32 p, i32& head) {
	const i32 each = a.q_heads / a.kv_heads;
	if (t.tree) {
		head = t.kvh * each + p;
		return p < each ? t.group : -1;
	}
	const i32 i = (t.group * ROWS + p) / each;
	head = t.kvh * each + (t.group * ROWS + p) % each;
	return i < t.s.len ? i : -1;
}

INLINE i32 position(const AttendArgs& a, const Item& t, i32 row) {
	if (!t.tree) return t.s.start + row;
	return min(max(a.b.pos.at(t.s.off + row), t.s.start), t.s.start + row);
}

// put writes a channel of a row's result.
INLINE void put(const AttendArgs& a, i32 r, i32 head, i32 c, float o, float l) {
	if (c >= a.dim) return;
	float v = l > 0 || l != l ? o / l + 0.0f : 0.0f;
	if (a.gated) v *= sigmoid(bf2f(query_in(a, r, head)[a.dim + c]));
	a.dst.row(r)[head * a.dim + c] = f2bf(v);
}

// Tile is what a block has in shared memory.
template <int DIM, int MT> struct Tile {
	enum { ROWS = 16 * MT, PITCH = DIM + 8, KV = TILE * PITCH };
	u16 *q, *p, *kv;
	float* top; // [WARPS][ROWS]
	i32* path;
	Plan plan;
	__device__ __forceinline__ Tile(u16* shared, const AttendArgs& a) {
		q = shared;
		p = q + ROWS * PITCH;
		kv = p + ROWS * TILE_PITCH;
		top = (float*)(kv + 2 * a.stages * KV);
		path = (i32*)(top + WARPS * ROWS);
		plan.ends = path + WINDOW;
		plan.info = plan.ends + a.b.spans;
		plan.parts = plan.info + a.b.spans;
	}
	__device__ __forceinline__ u16* keys(const AttendArgs& a, i32 tile) const { return kv + 2 * (tile % a.stages) * KV; }
	__device__ __forceinline__ u16* values(const AttendArgs& a, i32 tile) const { return keys(a, tile) + KV; }
};

INLINE i32 page_of(const AttendArgs& a, const Item& t, i32 tile) {
	const i32 page = tile < a.slot_pages ? a.table[(u64)t.s.slot * a.slot_pages + tile] : -1;
	return page < a.pages ? page : -1;
}

// place_of returns where key j of the item lies, of a tile on page; -1 if nowhere.
template <int DIM, int MT> INLINE long long place_of(const AttendArgs& a, const Item& t, const Tile<DIM, MT>& m, i32 j, i32 page) {
	if (page < 0 || j < a.first) return -1;
	if (t.tree && j >= t.s.start) return cached(a, t.s.slot, t.s.start + m.path[j - t.s.start], t.kvh);
	return ((long long)page * PAGE + j % PAGE) * a.kv_heads + t.kvh;
}

// load_tile starts the copy of a tile of keys and values, which lies on page. Keys
// that no row of the item sees are zeros.
template <int DIM, int MT> INLINE void load_tile(const AttendArgs& a, const Item& t, const Tile<DIM, MT>& m, i32 tile, i32 page, i32 hi) {
	enum { CHUNKS = DIM / 8 };
	u16 *k = m.keys(a, tile), *v = m.values(a, tile);
	if (page < 0 && threadIdx.x == 0) fail(a.e, FAULT_PAGE, t.s.off, tile * TILE, a.slot_pages);
	const i32 c = threadIdx.x % CHUNKS * 8, key0 = threadIdx.x / CHUNKS, first = tile * TILE;
	enum { PITCH = Tile<DIM, MT>::PITCH, STEP = THREADS / CHUNKS };
	k += key0 * PITCH + c, v += key0 * PITCH + c;
	if (page >= 0 && first >= a.first && first + TILE - 1 <= (t.tree ? t.s.start - 1 : hi) && a.dim == DIM) {
		// All of the page, row after row.
		const u64 from = (((u64)page * PAGE + key0) * a.kv_heads + t.kvh) * DIM + c, step = (u64)STEP * a.kv_heads * DIM;
		const u16 *keys = a.keys + from, *values = a.values + from;
#pragma unroll
		for (int i = 0; i < TILE / STEP; i++, keys += step, values += step) {
			fetch(k + i * STEP * PITCH, keys, true);
			fetch(v + i * STEP * PITCH, values, true);
		}
		return;
	}
#pragma unroll 1
	for (i32 key = key0; key < TILE; key += STEP, k += STEP * PITCH, v += STEP * PITCH) {
		const i32 j = first + key;
		const long long at = j <= hi && c < a.dim ? place_of(a, t, m, j, page) : -1;
		const u64 from = at < 0 ? 0 : at * a.dim + c;
		fetch(k, a.keys + from, at >= 0);
		fetch(v, a.values + from, at >= 0);
	}
}

// Rows is the state of the rows of a tile as a lane has it: row g and g+8 of each 16.
template <int DIM, int MT> struct Rows {
	enum { NV = DIM / 32 };
	float m[MT][2], l[MT][4], o[MT][NV][4];
	__device__ __forceinline__ void clear() {
#pragma unroll
		for (int i = 0; i < MT; i++) {
			m[i][0] = m[i][1] = -INF;
#pragma unroll
			for (int c = 0; c < 4; c++) {
				l[i][c] = 0;
#pragma unroll
				for (int n = 0; n < NV; n++) o[i][n][c] = 0;
			}
		}
	}
	__device__ __forceinline__ void scale(int i, float lo, float hi) {
		l[i][0] *= lo, l[i][1] *= lo, l[i][2] *= hi, l[i][3] *= hi;
#pragma unroll
		for (int n = 0; n < NV; n++) o[i][n][0] *= lo, o[i][n][1] *= lo, o[i][n][2] *= hi, o[i][n][3] *= hi;
	}
};

// walk_tile weighs a tile of keys: P lies in shared memory then, and rows are rescaled.
// The queries of a single 16 rows lie in registers. all: every row sees every key.
template <int DIM, int MT>
INLINE void walk_tile(const AttendArgs& a, const Tile<DIM, MT>& m, Rows<DIM, MT>& x, const u32 (*queries)[4], i32 tile, bool all, const i32 (*pos)[2], const i32* const (*mask)[2]) {
	typedef Tile<DIM, MT> T;
	const i32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
	const u16* k = m.keys(a, tile);
	const float log2e = 1.44269504f, unit = a.scale * log2e;
	float s[MT][2][4] = {};
#pragma unroll
	for (int i = 0; i < DIM / 16; i++) {
		u32 b[4];
		load4(b, k + (16 * warp + (lane & 7) + (lane >> 4) * 8) * T::PITCH + 16 * i + (lane >> 3 & 1) * 8);
#pragma unroll
		for (int r = 0; r < MT; r++) {
			u32 own[4];
			if (MT > 1) load4(own, m.q + (16 * r + (lane & 15)) * T::PITCH + 16 * i + (lane >> 4) * 8);
			const u32* q = MT > 1 ? own : queries[MT > 1 ? 0 : i];
			mma(s[r][0], q, b[0], b[1]);
			mma(s[r][1], q, b[2], b[3]);
		}
	}
	const i32 j0 = tile * TILE + 16 * warp;
#pragma unroll
	for (int r = 0; r < MT; r++) {
#pragma unroll
		for (int h = 0; h < 2; h++) {
			float top = -INF;
#pragma unroll
			for (int c = 0; c < 4; c++) s[r][c / 2][2 * h + c % 2] *= unit;
			if (!all) {
				const u32 seen = mask[r][h] ? mask[r][h][j0 / 32] >> j0 % 32 : ~0u;
#pragma unroll
				for (int c = 0; c < 4; c++) {
					const i32 in = c / 2 * 8 + 2 * t + c % 2;
					if (j0 + in > pos[r][h] || j0 + in < a.first || !(seen >> in & 1)) s[r][c / 2][2 * h + c % 2] = -INF;
				}
			}
#pragma unroll
			for (int c = 0; c < 4; c++) top = fmaxf(top, s[r][c / 2][2 * h + c % 2]);
			top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
			top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
			if (t == 0) m.top[warp * T::ROWS + 16 * r + 8 * h + g] = top;
		}
	}
	__syncthreads();
#pragma unroll
	for (int r = 0; r < MT; r++) {
		float old[2];
#pragma unroll
		for (int h = 0; h < 2; h++) {
			float top = x.m[r][h];
#pragma unroll
			for (int w = 0; w < WARPS; w++) top = fmaxf(top, m.top[w * T::ROWS + 16 * r + 8 * h + g]);
			const float base = top == -INF ? 0.0f : top;
			old[h] = power2(x.m[r][h] - base);
			x.m[r][h] = top;
			u16* p = m.p + (16 * r + 8 * h + g) * TILE_PITCH + 16 * warp + 2 * t;
#pragma unroll
			for (int n = 0; n < 2; n++)
				*(u32*)(p + 8 * n) = pair(power2(s[r][n][2 * h] - base), power2(s[r][n][2 * h + 1] - base));
		}
		x.scale(r, old[0], old[1]);
	}
}

// add_values adds P V of a tile to the rows that are wanted and, with sum, the sum of P
// to all. Where it is called for some rows only (WHOLE 0), speed counts for nothing.
template <int WHOLE, int DIM, int MT, class Wanted> INLINE void add_values(const Tile<DIM, MT>& m, Rows<DIM, MT>& x, const u16* v, bool sum, Wanted wanted) {
	const i32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
	const u32 ones = 0x3f803f80;
#pragma unroll(WHOLE ? TILE / 16 : 1)
	for (int i = 0; i < TILE / 16; i++) {
		u32 p[MT][4];
#pragma unroll
		for (int r = 0; r < MT; r++) {
			load4(p[r], m.p + (16 * r + (lane & 15)) * TILE_PITCH + 16 * i + (lane >> 4) * 8);
			if (sum) mma(x.l[r], p[r], ones, ones);
		}
#pragma unroll
		for (int n = 0; n < DIM / 64; n++) {
			u32 b[4];
			load4_turned(b, v + (16 * i + (lane & 15)) * Tile<DIM, MT>::PITCH + warp * (DIM / 4) + 16 * n + (lane >> 4) * 8);
#pragma unroll
			for (int r = 0; r < MT; r++) {
#pragma unroll
				for (int half = 0; half < 2; half++) {
					float* o = x.o[r][2 * n + half];
					float y[4] = {o[0], o[1], o[2], o[3]};
					mma(y, p[r], b[2 * half], b[2 * half + 1]);
#pragma unroll
					for (int c = 0; c < 4; c++)
						if (wanted(r, c / 2)) o[c] = y[c];
				}
			}
		}
	}
}

// odd_values reports to the block whether a tile of values has one that is not finite:
// what a row does not see must not reach it as zero times infinity.
template <int DIM, int MT> INLINE bool odd_values(const u16* v) {
	bool odd = false;
#pragma unroll 4
	for (i32 i = threadIdx.x; i < TILE * (DIM / 8); i += THREADS) {
		const uint4 x = *(const uint4*)(v + i / (DIM / 8) * Tile<DIM, MT>::PITCH + i % (DIM / 8) * 8);
		const u32 u[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
		for (int j = 0; j < 4; j++) odd |= (u[j] & 0x7f80) == 0x7f80 || (u[j] >> 16 & 0x7f80) == 0x7f80;
	}
	return __syncthreads_or(odd);
}

// load_seen loads a tile of values again, with zeros where a row of the span does not
// see them.
template <int DIM, int MT> INLINE void load_seen(const AttendArgs& a, const Item& t, const Tile<DIM, MT>& m, i32 tile, i32 row) {
	const i32 pos = position(a, t, row), page = page_of(a, t, tile);
	const i32* mask = a.chosen.p && pos < 32 * a.chosen.rows ? a.chosen.row(t.s.off + row) : nullptr;
	for (i32 i = threadIdx.x; i < TILE * (DIM / 8); i += THREADS) {
		const i32 key = i / (DIM / 8), c = i % (DIM / 8) * 8, j = tile * TILE + key;
		const bool seen = j <= pos && c < a.dim && (!mask || mask[j / 32] >> (j % 32) & 1);
		const long long at = seen ? place_of(a, t, m, j, page) : -1;
		*(uint4*)(m.values(a, tile) + key * Tile<DIM, MT>::PITCH + c) = at < 0 ? make_uint4(0, 0, 0, 0) : *(const uint4*)(a.values + at * a.dim + c);
	}
	__syncthreads();
}

// leave writes a split's rows to its slot and begins the next one.
template <int DIM, int MT> INLINE void leave(const AttendArgs& a, const Item& t, i32 split, Rows<DIM, MT>& x) {
	enum { ROWS = 16 * MT };
	const i32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, q = lane & 3;
	float* part = a.parts + (u64)(t.slot + split) * a.part_floats;
	i32 head;
#pragma unroll
	for (int i = 0; i < 2 * MT; i++) {
		const i32 row = 8 * i + g;
		if (row_at<ROWS>(a, t, row, head) < 0) continue;
		float* o = part + row * DIM + warp * (DIM / 4) + 2 * q;
#pragma unroll
		for (int n = 0; n < DIM / 32; n++) *(float2*)(o + 8 * n) = make_float2(x.o[i / 2][n][i % 2 * 2], x.o[i / 2][n][i % 2 * 2 + 1]);
		if (warp == 0 && q == 0) {
			part[ROWS * DIM + row] = x.m[i / 2][i % 2];
			part[ROWS * DIM + ROWS + row] = x.l[i / 2][i % 2 * 2];
		}
	}
	x.clear();
}

enum { FOLD = 32 }; // channels that are folded at a time

// fold_part folds channels c0 to c0+FOLD-1 of a head of a row, whose parts begin at first.
// Weights are what fold gives, for as many splits at a time as there are threads.
INLINE void fold_part(const AttendArgs& a, i32 r, i32 h, i32 c0, const float* first, i32 splits, i32 row) {
	__shared__ __align__(16) float y[THREADS][FOLD];
	__shared__ Fold weights[THREADS];
	__shared__ float sums[THREADS], tops[WARPS];
	const i32 tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
	float m = -INF, l = 0, o = 0;
	for (i32 s0 = 0; s0 < splits; s0 += THREADS) {
		const i32 n = min((i32)THREADS, splits - s0);
		__syncthreads();
		for (i32 i = tid / (FOLD / 4); i < n; i += THREADS / (FOLD / 4)) {
			const i32 c = tid % (FOLD / 4) * 4;
			fetch(y[i] + c, first + (u64)(s0 + i) * a.part_floats + row * a.tile_dim + c0 + c, true);
		}
		commit_loads();
		const float* own = first + (u64)(s0 + min(tid, n - 1)) * a.part_floats + a.tile_rows * a.tile_dim + row;
		const float top = tid < n ? own[0] : -INF, sum = own[a.tile_rows];
		float most = top;
#pragma unroll
		for (int w = 1; w < 32; w *= 2) {
			const float v = __shfl_up_sync(~0u, most, w);
			if (lane >= w) most = fmaxf(most, v);
		}
		if (lane == 31) tops[warp] = most;
		__syncthreads();
		const float before = __shfl_up_sync(~0u, most, 1);
		float upto = m;
		for (i32 w = 0; w < warp; w++) upto = fmaxf(upto, tops[w]);
		if (lane > 0) upto = fmaxf(upto, before);
		weights[tid] = fold(upto, top);
		sums[tid] = sum;
		for (i32 w = 0; w < WARPS; w++) m = fmaxf(m, tops[w]);
		await_loads<0>();
		__syncthreads();
		if (tid >= FOLD) continue;
#pragma unroll 8
		for (i32 i = 0; i < n; i++) {
			const Fold f = weights[i];
			l = fmaf(l, f.old, sums[i] * f.now);
			o = fmaf(o, f.old, y[i][tid] * f.now);
		}
	}
	if (tid < FOLD) put(a, r, h, c0 + tid, o, l);
}

// Folds the splits of rows that were cut: grid (rows, ..), whose blocks share the heads
// and channels.
KERNEL(attend_fold, AttendArgs) {
	const i32 r = blockIdx.x, each = a.q_heads / a.kv_heads, parts = (a.dim + FOLD - 1) / FOLD;
	Span s;
	if (!span_of(a.e, a.b, a.slots, r, s)) return;
	const i32 info = a.plan[2 * s.index], begin = a.plan[2 * s.index + 1], splits = info & ~TREE;
	if (splits == 0) return;
	for (i32 i = blockIdx.y; i < a.q_heads * parts; i += gridDim.y) {
		const i32 h = i / parts, at = s.row * each + h % each;
		const i32 row = info & TREE ? h % each : at % a.tile_rows, group = info & TREE ? s.row : at / a.tile_rows;
		const i32 slot = begin + (group * a.kv_heads + h / each) * splits;
		fold_part(a, r, h, i % parts * FOLD, a.parts + (u64)slot * a.part_floats, splits, row);
	}
}

// add folds a split into the rows of all splits.
template <int DIM, int MT> INLINE void add(Rows<DIM, MT>& all, Rows<DIM, MT>& x) {
#pragma unroll
	for (int r = 0; r < MT; r++) {
		Fold f[2];
#pragma unroll
		for (int h = 0; h < 2; h++) f[h] = fold(all.m[r][h], x.m[r][h]);
#pragma unroll
		for (int c = 0; c < 4; c++) {
			all.l[r][c] = fmaf(all.l[r][c], f[c / 2].old, x.l[r][c] * f[c / 2].now);
#pragma unroll
			for (int n = 0; n < DIM / 32; n++) all.o[r][n][c] = fmaf(all.o[r][n][c], f[c / 2].old, x.o[r][n][c] * f[c / 2].now);
		}
	}
	x.clear();
}

template <int DIM, int MT> INLINE void attend_item(const AttendArgs& a, const Item& t, const Tile<DIM, MT>& m) {
	enum { ROWS = 16 * MT, PITCH = DIM + 8 };
	const i32 tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, g = lane >> 2, q = lane & 3;
	__syncthreads();
	if (t.tree && tid == 0) {
		i32 i = t.group;
		for (i32 depth = position(a, t, i) - t.s.start; depth >= 0; depth--) {
			m.path[depth] = i;
			i = max(parent_of(a.e, a.b, t.s, i), 0);
		}
	}
	i32 head;
	for (i32 i = tid; i < ROWS * (DIM / 8); i += THREADS) {
		const i32 p = i / (DIM / 8), c = i % (DIM / 8) * 8, row = row_at<ROWS>(a, t, p, head);
		const bool there = row >= 0 && c < a.dim;
		fetch(m.q + p * PITCH + c, there ? a.dst.row(t.s.off + row) + head * a.dim + c : a.dst.p, there);
	}
	commit_loads();
	i32 pos[MT][2], at[MT][2];
	const i32* mask[MT][2];
#pragma unroll
	for (int i = 0; i < 2 * MT; i++) {
		const i32 row = row_at<ROWS>(a, t, 8 * i + g, head);
		at[i / 2][i % 2] = row < 0 ? -1 : t.s.off + row;
		pos[i / 2][i % 2] = row < 0 ? -1 : position(a, t, row);
		mask[i / 2][i % 2] = nullptr;
		if (a.chosen.p && row >= 0) {
			if (pos[i / 2][i % 2] < 32 * a.chosen.rows) mask[i / 2][i % 2] = a.chosen.row(t.s.off + row);
			else fail(a.e, FAULT_MASK, t.s.off + row, pos[i / 2][i % 2], 32 * a.chosen.rows);
		}
	}
	// Keys from open on are not those of all rows.
	const i32 hi = position(a, t, t.last), open = a.chosen.p ? 0 : position(a, t, t.first) + 1;
	__syncthreads();
	i32 lo = a.first, end = hi + 1;
	if (t.splits > 0) {
		const i32 s = split_of(a.first) + t.split;
		lo = max(lo, split_begin(s)), end = min(end, split_begin(s + t.run));
	}
	Rows<DIM, MT> x, all;
	x.clear();
	all.clear();
	const i32 from = lo / TILE, to = end > lo ? (end + TILE - 1) / TILE : from, ahead = a.stages - 1;
	i32 page = page_of(a, t, from); // of the next tile to load
	for (i32 i = 0; i < ahead; i++) {
		if (from + i < to) load_tile(a, t, m, from + i, page, hi);
		commit_loads();
		page = page_of(a, t, from + i + 1);
	}
	i32 split = t.split;
	u32 queries[MT == 1 ? DIM / 16 : 1][4];
	for (i32 i = from; i < to; i++) {
		if (ahead == 2) await_loads<1>();
		else await_loads<0>();
		__syncthreads();
		if (i + ahead < to) load_tile(a, t, m, i + ahead, page, hi);
		commit_loads();
		page = page_of(a, t, i + ahead + 1);
		if (ahead == 0) {
			await_loads<0>();
			__syncthreads();
		}
		if (MT == 1 && i == from) {
#pragma unroll
			for (int j = 0; j < DIM / 16; j++) load4(queries[MT == 1 ? j : 0], m.q + (lane & 15) * PITCH + 16 * j + (lane >> 4) * 8);
		}
		const bool plain = (i + 1) * TILE <= open;
		walk_tile(a, m, x, queries, i, plain && i * TILE >= a.first, pos, mask);
		__syncthreads();
		if (plain || t.first == t.last && !a.chosen.p || !odd_values<DIM, MT>(m.values(a, i))) {
			add_values<1>(m, x, m.values(a, i), true, [](int, int) { return true; });
		} else {
#pragma unroll 1
			for (i32 row = t.first; row <= t.last; row++) {
				load_seen(a, t, m, i, row);
				const i32 own = position(a, t, row);
				add_values<0>(m, x, m.values(a, i), row == t.first, [&](int r, int h) { return pos[r][h] == own; });
				__syncthreads();
			}
		}
		if (i + 1 < to && split_of((i + 1) * TILE) == split_of(i * TILE)) continue;
		if (t.splits == 0) add(all, x);
		else leave(a, t, split++, x);
	}
	await_loads<0>();
	for (; split < t.split + t.run; split++) leave(a, t, split, x); // without a key
	if (t.splits > 0) return;
#pragma unroll
	for (int i = 0; i < 2 * MT; i++) {
		if (row_at<ROWS>(a, t, 8 * i + g, head) < 0) continue;
#pragma unroll
		for (int n = 0; n < DIM / 32; n++) {
#pragma unroll
			for (int c = 0; c < 2; c++)
				put(a, at[i / 2][i % 2], head, warp * (DIM / 4) + 8 * n + 2 * q + c, all.o[i / 2][n][i % 2 * 2 + c], all.l[i / 2][i % 2 * 2]);
		}
	}
}

template <int DIM, int MT> INLINE void attend_tiles(const AttendArgs& a) {
	extern __shared__ __align__(16) u16 shared[];
	Tile<DIM, MT> m(shared, a);
	make_plan<16 * MT>(a, m.plan);
	const i32 items = m.plan.ends[a.b.spans - 1];
	for (i32 i = blockIdx.x; i < items; i += gridDim.x) attend_item(a, find<16 * MT>(a, m.plan, i), m);
}

#define ATTEND(name, DIM, MT) \
	KERNEL(name, AttendArgs) { attend_tiles<DIM, MT>(a); }

ATTEND(attend_64_16, 64, 1)
ATTEND(attend_64_64, 64, 4)
ATTEND(attend_128_16, 128, 1)
ATTEND(attend_128_32, 128, 2)
ATTEND(attend_128_64, 128, 4)
ATTEND(attend_256_16, 256, 1)
ATTEND(attend_256_32, 256, 2)
