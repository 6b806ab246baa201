// Gated DeltaNet in window form. The state at the window's border at position B
// lies in half (B/WINDOW)%2 of the slot's two states, so committing past a
// border needs no copy and no selector: the committed length selects. Tokens
// behind the border have records (k, u, G) in a ring, at (Start + row) % ring,
// which in a chain is the position. Row t of a window with state S before it:
//
//   u_t = beta_t (v_t - e^G_t S^T k_t - sum_{j<t} e^(G_t-G_j) (k_t.k_j) u_j)
//   o_t = e^G_t S^T q_t + sum_{j<=t} e^(G_t-G_j) (q_t.k_j) u_j
//
// with j upwards. The last position of a window also writes the next border's
// state to the other half.
//
// Three kernels: delta_prepare convolves and normalises, a warp for each head of a row;
// delta walks the windows of a span, a block for COLS columns of a head's values; and
// delta_keep norms and gates, and keeps what later steps need. Rows are taken as many at
// a time as there is room for what passes between the three.
//
// A window is walked in chunks of up to CHUNK rows. A row's arithmetic is the same in
// every chunk: each sum is one chain, of j or of channels upwards.

enum { MAX_DIM = 256, MAX_TAPS = 8, CHUNK = 16, COLS = 32, LEAP = 4 };

struct DeltaArgs {
	Env e;
	View<u16> dst, proj;
	Batch b;
	const float *taps, *a_log, *dt_bias, *nw;
	float* state;              // this layer, slot 0, half 0: [v_heads, k_dim, v_dim]
	u64 slot_state, half_state; // floats from slot to slot, half to half
	float *k_rec, *u_rec, *g_rec; // slot 0: [ring, k_heads, k_dim], [v_heads, ring, v_dim], [v_heads, ring]
	u64 slot_rec;              // floats from slot to slot
	u16* conv;                 // slot 0: [conv_ring, channels]
	u64 slot_conv;
	const i32* length;         // committed lengths
	float* work;               // of each row: q, k, v and then o by channel, G of each value head
	float eps, q_scale;
	i32 k_heads, v_heads, k_dim, v_dim, taps_n, gate;
	i32 ring, conv_ring, slots, chunk; // chunk: most rows of a chunk, a multiple of 4
	i32 first, rows; // of the batch
};
LAYOUT(DeltaArgs, delta);

INLINE i32 channels_of(const DeltaArgs& a) { return 2 * a.k_heads * a.k_dim + a.v_heads * a.v_dim; }
INLINE float* work_of(const DeltaArgs& a, i32 r) { return a.work + (u64)(r - a.first) * (channels_of(a) + a.v_heads); }

// end_of is the end of a span's rows among those of this launch.
INLINE i32 end_of(const DeltaArgs& a, const Span& s) { return min(s.len, a.first + a.rows - s.off); }

// Source is where a tap of a row's convolution reads: a row of the batch, the slot's ring,
// or nothing.
typedef const u16* Source;

// sources finds those of a row, by one warp: src[m] is m rows up. Lane m reads what in a
// chain is the parent of the row m rows up.
INLINE void sources(const DeltaArgs& a, const Span& s, i32 channels, Source* src, i32 lane) {
	const bool chain = lane >= a.taps_n || lane > s.row || a.b.parent.at(s.off + s.row - lane) == s.row - lane - 1;
	const bool whole = __ballot_sync(~0u, chain) == ~0u;
	if (lane < a.taps_n) {
		const i32 p = s.pos - lane;
		i32 i = s.row;
		for (i32 m = 0; m < lane && p >= s.start; m++) i = whole ? i - 1 : max(parent_of(a.e, a.b, s, i), 0);
		src[lane] = p < 0 ? nullptr : p >= s.start ? a.proj.row(s.off + i) : a.conv + s.slot * a.slot_conv + (u64)(p % a.conv_ring) * channels;
	}
	__syncwarp();
}

// convolve returns one channel of a row after convolution and SiLU.
INLINE float convolve(const DeltaArgs& a, const Source* src, i32 ch) {
	const float* taps = a.taps + (u64)ch * a.taps_n;
	float acc = 0;
#pragma unroll 4
	for (i32 j = 0; j < a.taps_n; j++) {
		const Source x = src[a.taps_n - 1 - j];
		acc = fmaf(taps[j], x ? bf2f(x[ch]) : 0.0f, acc);
	}
	return silu(acc);
}

// unit normalises one head of q or k, by one warp.
INLINE void unit(float* x, i32 n, float scale, i32 lane) {
	float sum = 0;
	for (i32 i = lane; i < n; i += 32) sum = fmaf(x[i], x[i], sum);
	const float inv = 1.0f / sqrtf(warp_sum(sum) + 1e-6f);
	for (i32 i = lane; i < n; i += 32) x[i] = x[i] * inv * scale;
}

// Convolution, SiLU and, of q and k, the norm: grid (rows, heads / WARPS).
KERNEL(delta_prepare, DeltaArgs) {
	__shared__ Source srcs[WARPS][MAX_TAPS];
	__shared__ float bufs[WARPS][MAX_DIM];
	const i32 r = a.first + blockIdx.x, warp = threadIdx.x >> 5, lane = threadIdx.x & 31, h = blockIdx.y * WARPS + warp;
	const i32 keyed = 2 * a.k_heads, n = h < keyed ? a.k_dim : a.v_dim, channels = channels_of(a);
	const i32 at = h < keyed ? h * n : keyed * a.k_dim + (h - keyed) * n;
	Span s;
	if (h >= keyed + a.v_heads || !span_of(a.e, a.b, a.slots, r, s)) return;
	sources(a, s, channels, srcs[warp], lane);
	float* x = bufs[warp];
#pragma unroll 4
	for (i32 i = lane; i < n; i += 32) x[i] = convolve(a, srcs[warp], at + i);
	if (h < keyed) unit(x, n, h < a.k_heads ? a.q_scale : 1.0f, lane);
	float* to = work_of(a, r) + at;
	for (i32 i = lane; i < n; i += 32) to[i] = x[i];
}

// records lists the ring entries of the row's window before it, by position,
// and for a row of a tree beyond a border those of the window before, in last.
INLINE void records(const DeltaArgs& a, const Span& s, bool tree, i32* rec, i32* last) {
	const i32 base = s.pos / WINDOW * WINDOW, n = s.pos - base, from = base > s.start ? -WINDOW : 0;
	if (!tree) {
		for (i32 j = threadIdx.x; j < n; j += THREADS) rec[j] = (base + j) % a.ring;
	} else if (threadIdx.x == 0) {
		i32 i = s.row;
		for (i32 j = n - 1; j >= from; j--) {
			i32 entry = (base + j) % a.ring;
			if (base + j >= s.start) {
				i = max(parent_of(a.e, a.b, s, i), 0);
				entry = (s.start + i) % a.ring;
			}
			if (j >= 0) rec[j] = entry;
			else last[WINDOW + j] = entry;
		}
	}
}

// Head is what a block has in shared memory: rows of floats, filled up with zeros to a
// multiple of 4.
struct Head {
	i32 kd, pitch; // floats of a key; from key to key
	float *keys, *us; // [ring, pitch], [ring, COLS]
	float *S, *q; // [kd, COLS], [chunk, pitch]
	float *rest, *sq; // [chunk, COLS]: v, then v - e^G S^T k; S^T q
	float4 *ks, *qs; // weights of records: [WINDOW, LEAP] of rows LEAP apart
	__device__ __forceinline__ Head(const DeltaArgs& a, float* shared) {
		kd = (a.k_dim + 3) & ~3, pitch = kd + 4;
		keys = shared;
		us = keys + a.ring * pitch;
		S = us + a.ring * COLS;
		q = S + kd * COLS;
		rest = q + a.chunk * pitch;
		sq = rest + a.chunk * COLS;
		ks = (float4*)(sq + a.chunk * COLS);
		qs = ks + WINDOW * LEAP;
	}
	__device__ __forceinline__ float& k_weight(i32 r, i32 j) const { return ((float*)(ks + j * LEAP + r % LEAP))[r / LEAP]; }
	__device__ __forceinline__ float& q_weight(i32 r, i32 j) const { return ((float*)(qs + j * LEAP + r % LEAP))[r / LEAP]; }
};

struct Copy { float* to; const float* from; };

// copy4 starts the copy of floats c to c+3 of a row, of which there are have, to shared
// memory.
INLINE void copy4(const Copy& p, i32 c, i32 have) {
	if (have % 4 == 0 && at_once(p.from)) {
		fetch(p.to + c, c < have ? p.from + c : p.from, c < have);
		return;
	}
#pragma unroll 1
	for (i32 j = c; j < c + 4; j++) p.to[j] = j < have ? p.from[j] : 0.0f;
}

// load_keys copies rows as wide as keys, a warp each; load_columns rows of COLS.
template <class F> INLINE void load_keys(i32 rows, i32 wide, i32 have, F at) {
	for (i32 j = threadIdx.x / 32; j < rows; j += WARPS) {
		const Copy p = at(j);
		for (i32 c = threadIdx.x % 32 * 4; c < wide; c += 128) copy4(p, c, have);
	}
}

template <class F> INLINE void load_columns(i32 rows, i32 have, F at) {
	for (i32 j = threadIdx.x / (COLS / 4); j < rows; j += THREADS / (COLS / 4)) copy4(at(j), threadIdx.x % (COLS / 4) * 4, have);
}

// wrap takes an index below twice the ring into it.
INLINE i32 wrap(i32 i, i32 ring) { return i < ring ? i : i - ring; }

INLINE float part(float4 v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

INLINE float chain(float4 x, float4 y, float s) { return fmaf(x.w, y.w, fmaf(x.z, y.z, fmaf(x.y, y.y, fmaf(x.x, y.x, s)))); }

INLINE float dot(const float* x, const float* y, i32 n) {
	float s = 0;
#pragma unroll 8
	for (i32 i = 0; i < n; i += 4) s = chain(*(const float4*)(x + i), *(const float4*)(y + i), s);
	return s;
}

// fold takes S from the beginning of a window to its end: S = e^G_63 S + sum_t
// e^(G_63-G_t) k_t u_t, of records rec upwards. next, if any, gets it too. It is no part
// of the code that a step of one row runs through, most of whose time is fetching code.
static __device__ __noinline__ void fold(const DeltaArgs& a, const Head d, const i32* rec, const float* decay, float fade, bool zero, float* next, i32 cols) {
	enum { EACH = 8 };
	const i32 c = threadIdx.x % (COLS / 4) * 4;
	for (i32 j0 = threadIdx.x / (COLS / 4) * EACH; j0 < d.kd; j0 += THREADS / (COLS / 4) * EACH) {
		float w[EACH][4];
#pragma unroll
		for (int i = 0; i < EACH; i++) {
#pragma unroll
			for (int x = 0; x < 4; x++) w[i][x] = zero || j0 + i >= d.kd ? 0.0f : fade * d.S[(j0 + i) * COLS + c + x];
		}
#pragma unroll 4
		for (i32 t = 0; t < WINDOW; t++) {
			const float4 u4 = *(const float4*)(d.us + rec[t] * COLS + c);
			const float u[4] = {u4.x, u4.y, u4.z, u4.w}, e = decay[t];
			const float* k = d.keys + rec[t] * d.pitch + j0;
#pragma unroll
			for (int i = 0; i < EACH; i += 4) {
				const float4 k4 = i == 0 || j0 + i < d.kd ? *(const float4*)(k + i) : make_float4(0, 0, 0, 0);
				const float y[4] = {e * k4.x, e * k4.y, e * k4.z, e * k4.w};
#pragma unroll
				for (int x = 0; x < 16; x++) w[i + x / 4][x % 4] = fmaf(y[x / 4], u[x % 4], w[i + x / 4][x % 4]);
			}
		}
#pragma unroll
		for (int i = 0; i < EACH; i++) {
			if (j0 + i >= d.kd) break;
			*(float4*)(d.S + (j0 + i) * COLS + c) = make_float4(w[i][0], w[i][1], w[i][2], w[i][3]);
			if (!next || j0 + i >= a.k_dim) continue;
			float* to = next + (u64)(j0 + i) * a.v_dim + c;
			if (c + 4 <= cols && at_once(to)) {
				*(float4*)to = make_float4(w[i][0], w[i][1], w[i][2], w[i][3]);
			} else {
#pragma unroll
				for (int x = 0; x < 4; x++)
					if (c + x < cols) to[x] = w[i][x];
			}
		}
	}
}

// with_state leaves v - e^G S^T k in rest, and S^T q in sq, for the m rows of a chunk.
INLINE void with_state(const Head& d, const i32* rec, const float* fades, i32 m) {
	const i32 tid = threadIdx.x;
	if (m <= LEAP) { // a warp for each sum, by columns
		const i32 c = tid % COLS;
		for (i32 i = tid / COLS; i < 2 * m; i += WARPS) {
			const i32 r = i % m;
			const float* x = i < m ? d.keys + rec[r] * d.pitch : d.q + r * d.pitch;
			float s = 0;
#pragma unroll 4
			for (i32 j = 0; j < d.kd; j += 4) {
				const float* w = d.S + j * COLS + c;
				s = chain(*(const float4*)(x + j), make_float4(w[0], w[COLS], w[2 * COLS], w[3 * COLS]), s);
			}
			if (i < m) d.rest[r * COLS + c] -= fades[r] * s;
			else d.sq[r * COLS + c] = s;
		}
		return;
	}
	const i32 r = tid / (COLS / 4), c = tid % (COLS / 4) * 4;
	if (r >= m) return;
	const float *k = d.keys + rec[r] * d.pitch, *q = d.q + r * d.pitch;
	float sk[4] = {}, sq[4] = {};
#pragma unroll 2
	for (i32 j0 = 0; j0 < d.kd; j0 += 4) {
		const float4 k4 = *(const float4*)(k + j0), q4 = *(const float4*)(q + j0);
#pragma unroll
		for (int j = 0; j < 4; j++) {
			const float4 w4 = *(const float4*)(d.S + (j0 + j) * COLS + c);
			const float w[4] = {w4.x, w4.y, w4.z, w4.w}, kj = part(k4, j), qj = part(q4, j);
#pragma unroll
			for (int x = 0; x < 4; x++) sk[x] = fmaf(kj, w[x], sk[x]), sq[x] = fmaf(qj, w[x], sq[x]);
		}
	}
#pragma unroll
	for (int x = 0; x < 4; x++) d.rest[r * COLS + c + x] -= fades[r] * sk[x], d.sq[r * COLS + c + x] = sq[x];
}

// weigh leaves the weights of records for the m rows behind n records: e^(G_t-G_j)
// (k_t.k_j) of j < t, e^(G_t-G_j) (q_t.k_j) of j <= t.
INLINE void weigh(const Head& d, const i32* rec, const float* g, i32 n, i32 m) {
	const i32 tid = threadIdx.x;
	const auto put = [&](bool query, i32 r, i32 j, float s) {
		const float w = expf(g[rec[n + r]] - g[rec[j]]) * s; // of j = t the exponential is 1
		if (query) d.q_weight(r, j) = w;
		else d.k_weight(r, j) = w;
	};
	if (m <= LEAP) {
		const i32 all = n + m;
		for (i32 i = tid; i < 2 * m * all; i += THREADS) {
			const i32 j = i % all, r = i / all % m;
			const bool query = i >= m * all;
			if (j <= n + r) put(query, r, j, dot(query ? d.q + r * d.pitch : d.keys + rec[n + r] * d.pitch, d.keys + rec[j] * d.pitch, d.kd));
		}
		return;
	}
	enum { EACH = 4, STEP = THREADS / CHUNK };
	const i32 r = tid / STEP;
	if (r >= m) return;
	const float *k = d.keys + rec[n + r] * d.pitch, *q = d.q + r * d.pitch;
	for (i32 j0 = tid % STEP; j0 <= n + r; j0 += EACH * STEP) {
		const float* from[EACH];
		float sk[EACH] = {}, sq[EACH] = {};
#pragma unroll
		for (int x = 0; x < EACH; x++) from[x] = d.keys + rec[min(j0 + x * STEP, n + r)] * d.pitch;
#pragma unroll 2
		for (i32 i = 0; i < d.kd; i += 4) {
			const float4 k4 = *(const float4*)(k + i), q4 = *(const float4*)(q + i);
#pragma unroll
			for (int x = 0; x < EACH; x++) {
				const float4 y = *(const float4*)(from[x] + i);
				sk[x] = chain(k4, y, sk[x]), sq[x] = chain(q4, y, sq[x]);
			}
		}
#pragma unroll
		for (int x = 0; x < EACH; x++) {
			if (j0 + x * STEP > n + r) break;
			put(false, r, j0 + x * STEP, sk[x]);
			put(true, r, j0 + x * STEP, sq[x]);
		}
	}
}

// solve finds u and o of the m rows behind n records, row after row. A warp has 8
// columns, and a lane every LEAP-th row of one.
template <class U, class O> INLINE void solve(const Head& d, const i32* rec, const float* betas, const float* fades, i32 n, i32 m, U put_u, O put_o) {
	const i32 lane = threadIdx.x & 31, g = lane >> 3, c = (threadIdx.x >> 5) * 8 + (lane & 7);
	float uk[LEAP] = {}, uq[LEAP] = {};
#pragma unroll 4
	for (i32 j = 0; j < n; j++) {
		const float u = d.us[rec[j] * COLS + c];
		const float4 k = d.ks[j * LEAP + g], q = d.qs[j * LEAP + g];
#pragma unroll
		for (int i = 0; i < LEAP; i++) uk[i] = fmaf(part(k, i), u, uk[i]), uq[i] = fmaf(part(q, i), u, uq[i]);
	}
#pragma unroll
	for (int i0 = 0; i0 < LEAP; i0++) {
#pragma unroll
		for (int g0 = 0; g0 < LEAP; g0++) {
			const int r0 = LEAP * i0 + g0;
			if (r0 >= m) break;
			const float own = betas[r0] * (d.rest[r0 * COLS + c] - uk[i0]), u = __shfl_sync(~0u, own, g0 * 8 + (lane & 7));
			const float4 k = d.ks[(n + r0) * LEAP + g], q = d.qs[(n + r0) * LEAP + g];
#pragma unroll
			for (int i = i0; i < LEAP; i++) {
				const i32 r = LEAP * i + g;
				if (r > r0) uk[i] = fmaf(part(k, i), u, uk[i]);
				if (r >= r0) uq[i] = fmaf(part(q, i), u, uq[i]);
			}
			if (g == g0) uk[i0] = u; // its place is free
		}
	}
#pragma unroll
	for (int i = 0; i < LEAP; i++) {
		const i32 r = LEAP * i + g;
		if (r >= m) continue;
		put_o(r, c, fmaf(fades[r], d.sq[r * COLS + c], uq[i]));
		put_u(r, c, uk[i]);
	}
}

// One block per (value head and columns, span).
KERNEL(delta, DeltaArgs) {
	extern __shared__ __align__(16) float shared[];
	__shared__ float g[2 * WINDOW], decay[WINDOW], betas[CHUNK], rates[CHUNK], fades[CHUNK];
	__shared__ i32 rec[WINDOW], last[WINDOW];
	const i32 tid = threadIdx.x, kd = a.k_dim, vd = a.v_dim, parts = (vd + COLS - 1) / COLS;
	const i32 h = blockIdx.x / parts, c0 = blockIdx.x % parts * COLS, cols = min((i32)COLS, vd - c0), kh = h / (a.v_heads / a.k_heads);
	const i32 channels = channels_of(a), k_all = a.k_heads * kd;
	const Head d(a, shared);
	Span s;
	if (!span_at(a.e, a.b, a.slots, blockIdx.y, s)) return;
	const i32 begin = max(0, a.first - s.off), end = end_of(a, s), committed = a.length[s.slot];
	if (begin >= end) return;
	float* const state = a.state + s.slot * a.slot_state + (u64)h * kd * vd + c0;
	float* const u_rec = a.u_rec + s.slot * a.slot_rec + (u64)h * a.ring * vd + c0;
	const float* const k_rec = a.k_rec + s.slot * a.slot_rec + kh * kd;
	const float* const g_rec = a.g_rec + s.slot * a.slot_rec + (u64)h * a.ring;
	// Records of the open window, and of a tree's rows in front. They are asked for before
	// anything is waited for.
	bool tree = begin > 0 && is_tree(a.e, a.b, s);
	const i32 from = (tree ? s.start : s.start + begin) / WINDOW * WINDOW, before = s.start + begin - from;
	const auto load_state = [&](i32 border) {
		const float* S = state + border / WINDOW % 2 * a.half_state;
		if (border > 0) load_columns(d.kd, cols, [&](i32 j) { return Copy{d.S + j * COLS, S + (u64)min(j, kd - 1) * vd}; });
	};
	load_state(from);
	const i32 entry = from % a.ring;
	load_keys(before, d.kd, kd, [&](i32 j) {
		const i32 e = wrap(entry + j, a.ring);
		return Copy{d.keys + e * d.pitch, k_rec + (u64)e * k_all};
	});
	load_columns(before, cols, [&](i32 j) {
		const i32 e = wrap(entry + j, a.ring);
		return Copy{d.us + e * COLS, u_rec + (u64)e * vd};
	});
	for (i32 j = tid; j < before; j += THREADS) g[wrap(entry + j, a.ring)] = g_rec[wrap(entry + j, a.ring)];
	const float rate = -expf(a.a_log[h]), bias = a.dt_bias[h];
	if (begin == 0) tree = is_tree(a.e, a.b, s);
	if (s.start != committed) {
		if (tid == 0) fail(a.e, FAULT_START, s.index, s.start, committed);
		await_loads<0>();
		return;
	}
	i32 held = from, m; // held: the border whose state S is
	for (i32 i = begin; i < end; i += m) {
		m = tree ? 1 : min(min(a.chunk, end - i), WINDOW - (s.start + i) % WINDOW);
		const float* const in = work_of(a, s.off + i);
		const u64 row = channels + a.v_heads;
		const i32 slot = (s.start + i) % a.ring;
		load_keys(m, d.kd, kd, [&](i32 r) { return Copy{d.q + r * d.pitch, in + r * row + kh * kd}; });
		load_keys(m, d.kd, kd, [&](i32 r) { return Copy{d.keys + wrap(slot + r, a.ring) * d.pitch, in + r * row + k_all + kh * kd}; });
		load_columns(m, cols, [&](i32 r) { return Copy{d.rest + r * COLS, in + r * row + 2 * k_all + h * vd + c0}; });
		bool right = true;
		if (tid < m) {
			const u16* x = a.proj.row(s.off + i + tid) + channels + a.v_heads * vd;
			const float beta = bf2f(x[h]), step = bf2f(x[a.v_heads + h]);
			Span t = s;
			right = row_of(a.e, a.b, t, i + tid, Row(a.b, s.off + i + tid));
			betas[tid] = sigmoid(beta);
			rates[tid] = rate * softplus(step + bias);
		}
		s.row = i, s.pos = tree ? a.b.pos.at(s.off + i) : s.start + i;
		if (!__syncthreads_and(right)) {
			await_loads<0>();
			return;
		}
		const i32 base = s.pos / WINDOW * WINDOW, n = s.pos - base;
		// A row of a tree beyond a border has a state of its own, folded along
		// its path; all others read the border's.
		const bool own = tree && base > s.start;
		const i32 border = own ? base - WINDOW : base;
		if (held != border) load_state(border);
		held = border;
		commit_loads();
		records(a, s, tree, rec, last);
		for (i32 r = tid; r < m; r += THREADS) rec[n + r] = wrap(slot + r, a.ring);
		for (i32 r = tid; r < m * COLS; r += THREADS) d.sq[r] = 0;
		__syncthreads();
		if (tid == 0) {
			float sum = n > 0 ? g[rec[n - 1]] : 0.0f;
			for (i32 r = 0; r < m; r++) g[rec[n + r]] = sum += rates[r];
		}
		await_loads<0>();
		__syncthreads();
		if (tid < m) {
			fades[tid] = expf(g[rec[n + tid]]);
			if (c0 == 0) work_of(a, s.off + i + tid)[channels + h] = g[rec[n + tid]];
		}
		if (own) {
			const float over = g[last[WINDOW - 1]];
			for (i32 t = tid; t < WINDOW; t += THREADS) decay[t] = expf(over - g[last[t]]);
			__syncthreads();
			fold(a, d, last, decay, expf(over), border == 0, nullptr, cols);
			held = -1;
		}
		__syncthreads();
		if (base > 0) with_state(d, rec + n, fades, m);
		weigh(d, rec, g, n, m);
		__syncthreads();
		solve(d, rec, betas, fades, n, m,
		    [&](i32 r, i32 c, float u) {
			    d.us[rec[n + r] * COLS + c] = u;
			    if (c < cols) u_rec[(u64)rec[n + r] * vd + c] = u;
		    },
		    [&](i32 r, i32 c, float o) {
			    if (c < cols) work_of(a, s.off + i + r)[2 * k_all + h * vd + c0 + c] = o;
		    });
		__syncthreads();
		// The next border's state, by the row that can be committed there.
		if (n + m == WINDOW && s.pos == s.start + i) {
			const float over = g[rec[WINDOW - 1]];
			for (i32 t = tid; t < WINDOW; t += THREADS) decay[t] = expf(over - g[rec[t]]);
			__syncthreads();
			fold(a, d, rec, decay, expf(over), base == 0, state + (base / WINDOW + 1) % 2 * a.half_state, cols);
			held = tree ? -1 : base + WINDOW;
			__syncthreads();
		}
	}
	if (blockIdx.x == 0 && tid == 0) atomicAdd(&a.e.work[WORK_DELTA_ROWS], (u64)(end - begin));
}

// Norms and gates, and keeps what later steps need of a span: records of keys and of G,
// and the convolution's inputs. Grid (rows, jobs / WARPS): a warp for each value head,
// key head, and KEEP channels.
enum { KEEP = 1024 };
KERNEL(delta_keep, DeltaArgs) {
	const i32 r = a.first + blockIdx.x, lane = threadIdx.x & 31, kd = a.k_dim, vd = a.v_dim, channels = channels_of(a);
	i32 job = blockIdx.y * WARPS + (threadIdx.x >> 5);
	Span s;
	if (!span_of(a.e, a.b, a.slots, r, s)) return;
	const float* in = work_of(a, r);
	const bool kept = s.row >= end_of(a, s) - a.ring;
	const u64 entry = (s.start + s.row) % a.ring;
	if (job < a.v_heads) {
		const float* o = in + 2 * a.k_heads * kd + job * vd;
		const u16* z = a.proj.row(r) + channels + job * vd;
		u16* dst = a.dst.row(r) + job * vd;
		float squares = 0;
#pragma unroll 4
		for (i32 i = lane; i < vd; i += 32) squares = fmaf(o[i], o[i], squares);
		const float inv = 1.0f / sqrtf(warp_sum(squares) / (float)vd + a.eps);
#pragma unroll 4
		for (i32 i = lane; i < vd; i += 32) dst[i] = f2bf((a.nw ? o[i] * inv * a.nw[i] : o[i]) * activate(a.gate, bf2f(z[i])));
		if (kept && lane == 0) a.g_rec[s.slot * a.slot_rec + (u64)job * a.ring + entry] = in[channels + job];
		return;
	}
	job -= a.v_heads;
	if (job < a.k_heads) {
		const float* k = in + (a.k_heads + job) * kd;
		float* rec = a.k_rec + s.slot * a.slot_rec + entry * a.k_heads * kd + job * kd;
		for (i32 i = lane; i < kd && kept; i += 32) rec[i] = k[i];
		return;
	}
	const i32 at = (job - a.k_heads) * KEEP;
	if (at >= channels || s.row < s.len - a.conv_ring) return;
	u16* ring = a.conv + s.slot * a.slot_conv + (u64)((s.start + s.row) % a.conv_ring) * channels;
	copy_row(ring + at, a.proj.row(r) + at, min((i32)KEEP, channels - at), lane, 32);
}
