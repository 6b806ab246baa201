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

// The rows of a span that lie in one window are taken CHUNK at a time: the products with
// S of all of them in one pass over it, then row after row what depends on the rows
// before. A row's arithmetic is the same in every chunk.

enum { MAX_DIM = 256, MAX_TAPS = 8, CHUNK = 8, COLS = MAX_DIM / THREADS };

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
	float eps, q_scale;
	i32 k_heads, v_heads, k_dim, v_dim, taps_n, gate;
	i32 ring, conv_ring, slots, u_shared; // u_shared: u lies in shared memory too
};
LAYOUT(DeltaArgs, delta);

enum { FROM_RING = -1, ZERO = -2 };

// Where the inputs of a row's convolution come from: src[m] is the batch row m
// positions before, or the slot's ring, or zero.
INLINE void sources(const DeltaArgs& a, const Span& s, i32* src) {
	i32 i = s.row;
	src[0] = s.off + i;
	for (i32 m = 1; m < a.taps_n; m++) {
		i32 p = s.pos - m;
		if (p < 0) {
			src[m] = ZERO;
		} else if (p < s.start) {
			src[m] = FROM_RING;
		} else {
			i = max(parent_of(a.e, a.b, s, i), 0);
			src[m] = s.off + i;
		}
	}
}

// convolve returns one channel of a row after convolution and SiLU.
INLINE float convolve(const DeltaArgs& a, const Span& s, i32 pos, const i32* src, i32 channels, i32 ch) {
	float acc = 0;
#pragma unroll 4
	for (i32 j = 0; j < a.taps_n; j++) {
		const i32 m = a.taps_n - 1 - j, from = src[m];
		const u16* ring = a.conv + s.slot * a.slot_conv + (u64)((pos - m + MAX_TAPS * a.conv_ring) % a.conv_ring) * channels;
		const u16* x = from >= 0 ? a.proj.row(from) : ring;
		const float v = bf2f(x[ch]);
		acc = fmaf(a.taps[(u64)ch * a.taps_n + j], from == ZERO ? 0.0f : v, acc);
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

INLINE float dot(const float* x, const float* y, i32 n, i32 lane) {
	float s = 0;
	for (i32 i = lane; i < n; i += 32) s = fmaf(x[i], y[i], s);
	return warp_sum(s);
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

// folded returns element (j, c) of a head's state at the end of a window: rec
// are the window's records, decay e^(G_63 - G_t), fade e^G_63, S the state
// before it (null: zero).
INLINE float folded(const float* S, float fade, const float* decay, const i32* rec, const float* keys, const float* us, i32 kd, i32 vd, i32 j, i32 c) {
	float w = S ? fade * S[(u64)j * vd + c] : 0.0f;
	for (i32 t = 0; t < WINDOW; t++) w = fmaf(decay[t] * keys[rec[t] * kd + j], us[(u64)rec[t] * vd + c], w);
	return w;
}

// fold writes folded for all elements, eight at a time of a column.
INLINE void fold(float* next, const float* S, float fade, const float* decay, const i32* rec, const float* keys, const float* us, i32 kd, i32 vd) {
	enum { EACH = 8 };
	for (i32 c = threadIdx.x; c < vd; c += THREADS) {
		for (i32 j0 = 0; j0 < kd; j0 += EACH) {
			const i32 n = min((i32)EACH, kd - j0);
			float w[EACH];
#pragma unroll
			for (i32 i = 0; i < EACH; i++) w[i] = S && i < n ? fade * S[(u64)(j0 + i) * vd + c] : 0.0f;
			for (i32 t = 0; t < WINDOW; t++) {
				const float d = decay[t], u = us[(u64)rec[t] * vd + c];
				const float* k = keys + rec[t] * kd + j0;
#pragma unroll
				for (i32 i = 0; i < EACH; i++) w[i] = fmaf(d * k[i < n ? i : 0], u, w[i]);
			}
#pragma unroll
			for (i32 i = 0; i < EACH; i++)
				if (i < n) next[(u64)(j0 + i) * vd + c] = w[i];
		}
	}
}

// products are those of M rows of k and q with column c of S, of which J elements are
// loaded together.
template <int M, int J> INLINE void products(const float* S, const float (*k)[MAX_DIM], const float (*q)[MAX_DIM], i32 kd, i32 vd, i32 c, float* sk, float* sq) {
	const i32 whole = kd / J * J;
	for (i32 j0 = 0; j0 < whole; j0 += J) {
		float w[J];
#pragma unroll
		for (i32 i = 0; i < J; i++) w[i] = S[(u64)(j0 + i) * vd + c];
#pragma unroll
		for (i32 i = 0; i < J; i++) {
#pragma unroll
			for (i32 r = 0; r < M; r++) {
				sk[r] = fmaf(k[r][j0 + i], w[i], sk[r]);
				sq[r] = fmaf(q[r][j0 + i], w[i], sq[r]);
			}
		}
	}
	for (i32 j = whole; j < kd; j++) {
		const float w = S[(u64)j * vd + c];
#pragma unroll
		for (i32 r = 0; r < M; r++) sk[r] = fmaf(k[r][j], w, sk[r]), sq[r] = fmaf(q[r][j], w, sq[r]);
	}
}

// One block per (value head, span). Shared memory holds the keys of the ring and,
// where there is room, its u.
KERNEL(delta, DeltaArgs) {
	extern __shared__ float keys[]; // [ring, k_dim], [ring, v_dim]
	__shared__ float q[CHUNK][MAX_DIM], k[CHUNK][MAX_DIM], v[CHUNK][MAX_DIM], o[MAX_DIM], red[THREADS];
	__shared__ float g_ring[2 * WINDOW], kk[WINDOW], qk[WINDOW], decay[WINDOW], last_decay[WINDOW], betas[CHUNK], rates[CHUNK];
	__shared__ i32 rec[WINDOW], last[WINDOW], src[CHUNK][MAX_TAPS];
	const i32 h = blockIdx.x, tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
	const i32 kd = a.k_dim, vd = a.v_dim, kh = h / (a.v_heads / a.k_heads);
	const i32 k_all = a.k_heads * kd, v_all = a.v_heads * vd, channels = 2 * k_all + v_all;
	Span s;
	if (!span_at(a.e, a.b, a.slots, blockIdx.y, s)) return;
	if (s.start != a.length[s.slot]) {
		if (tid == 0) fail(a.e, FAULT_START, s.index, s.start, a.length[s.slot]);
		return;
	}
	const bool tree = is_tree(a.e, a.b, s);
	float* const state = a.state + s.slot * a.slot_state + (u64)h * kd * vd;
	float* const u_rec = a.u_rec + s.slot * a.slot_rec + (u64)h * a.ring * vd;
	float* const g_rec = a.g_rec + s.slot * a.slot_rec + (u64)h * a.ring;
	float* const us = a.u_shared ? keys + a.ring * kd : u_rec;
	const i32 open = s.start / WINDOW * WINDOW, before_n = s.start - open;
#pragma unroll 4
	for (i32 i = tid; i < before_n * kd; i += THREADS) {
		const i32 e = (open + i / kd) % a.ring;
		keys[e * kd + i % kd] = a.k_rec[s.slot * a.slot_rec + ((u64)e * a.k_heads + kh) * kd + i % kd];
	}
	if (a.u_shared) {
#pragma unroll 4
		for (i32 i = tid; i < before_n * vd; i += THREADS) {
			const u64 at = (u64)((open + i / vd) % a.ring) * vd + i % vd;
			us[at] = u_rec[at];
		}
	}
	for (i32 p = open + tid; p < s.start; p += THREADS) g_ring[p % a.ring] = g_rec[p % a.ring];
	const float rate = -expf(a.a_log[h]), bias = a.dt_bias[h];
	i32 m;
	for (i32 i = 0; i < s.len; i += m) {
		m = tree ? 1 : min(min((i32)CHUNK, s.len - i), WINDOW - (s.start + i) % WINDOW);
		bool right = true;
		if (tid < m) {
			Span t = s;
			right = row_of(a.e, a.b, t, i + tid);
			if (right) {
				sources(a, t, src[tid]);
				const u16* x = a.proj.row(s.off + i + tid) + channels + v_all;
				betas[tid] = sigmoid(bf2f(x[h]));
				rates[tid] = rate * softplus(bf2f(x[a.v_heads + h]) + bias);
			}
		}
		if (!__syncthreads_and(right)) return;
		const i32 pos0 = tree ? a.b.pos.at(s.off + i) : s.start + i;
#pragma unroll 2
		for (i32 r = 0; r < m; r++) {
			for (i32 c = tid; c < kd; c += THREADS) {
				q[r][c] = convolve(a, s, pos0 + r, src[r], channels, kh * kd + c);
				k[r][c] = convolve(a, s, pos0 + r, src[r], channels, k_all + kh * kd + c);
			}
			for (i32 c = tid; c < vd; c += THREADS) v[r][c] = convolve(a, s, pos0 + r, src[r], channels, 2 * k_all + h * vd + c);
		}
		__syncthreads();
		for (i32 r = warp; r < 2 * m; r += WARPS) unit(r < m ? q[r] : k[r - m], kd, r < m ? a.q_scale : 1.0f, lane);
		s.row = i, s.pos = pos0;
		records(a, s, tree, rec, last);
		__syncthreads();
		const i32 base = pos0 / WINDOW * WINDOW;
		// A row of a tree beyond a border has a state of its own, folded along
		// its path; all others read the border's.
		const bool own = tree && base > s.start;
		const float* const half[2] = {state, state + a.half_state};
		const float* S = base > 0 ? half[base / WINDOW % 2] : nullptr;
		float sk[COLS][CHUNK] = {}, sq[COLS][CHUNK] = {};
		if (own) {
			const float* before = base > WINDOW ? half[(base / WINDOW + 1) % 2] : nullptr;
			const float end = g_ring[last[WINDOW - 1]], last_fade = expf(end);
			for (i32 t = tid; t < WINDOW; t += THREADS) last_decay[t] = expf(end - g_ring[last[t]]);
			__syncthreads();
#pragma unroll
			for (i32 x = 0; x < COLS; x++) {
				const i32 c = tid + x * THREADS;
				for (i32 j = 0; j < kd && c < vd; j++) {
					const float w = folded(before, last_fade, last_decay, last, keys, us, kd, vd, j, c);
					sk[x][0] = fmaf(k[0][j], w, sk[x][0]);
					sq[x][0] = fmaf(q[0][j], w, sq[x][0]);
				}
			}
		} else if (S) {
#pragma unroll
			for (i32 x = 0; x < COLS; x++) {
				const i32 c = tid + x * THREADS;
				if (c >= vd) continue;
				if (m == 1) products<1, 32>(S, k, q, kd, vd, c, sk[x], sq[x]);
				else if (m <= 4) products<4, 16>(S, k, q, kd, vd, c, sk[x], sq[x]);
				else products<CHUNK, 8>(S, k, q, kd, vd, c, sk[x], sq[x]);
			}
		}
#pragma unroll
		for (i32 r = 0; r < CHUNK; r++) {
			if (r >= m) break;
			const i32 row = s.off + i + r, pos = pos0 + r, n = pos - base, slot = (s.start + i + r) % a.ring;
			const u16* z = a.proj.row(row) + channels + h * vd;
			float gate[COLS];
#pragma unroll
			for (i32 x = 0; x < COLS; x++) gate[x] = tid + x * THREADS < vd ? bf2f(z[tid + x * THREADS]) : 0.0f;
			if (tid == 0) rec[n] = slot;
			const float beta = betas[r], sum = (n > 0 ? g_ring[rec[n - 1]] : 0.0f) + rates[r], fade = expf(sum);
			for (i32 j = warp; j < n; j += WARPS) {
				const float* kj = keys + rec[j] * kd;
				const float dk = dot(k[r], kj, kd, lane), dq = dot(q[r], kj, kd, lane), w = expf(sum - g_ring[rec[j]]);
				if (lane == 0) {
					decay[j] = w;
					kk[j] = w * dk;
					qk[j] = w * dq;
				}
			}
			if (warp == 0) {
				const float self = dot(q[r], k[r], kd, lane);
				if (lane == 0) {
					decay[n] = 1.0f;
					qk[n] = self;
				}
			}
			__syncthreads();
			float squares = 0;
#pragma unroll
			for (i32 x = 0; x < COLS; x++) {
				const i32 c = tid + x * THREADS;
				if (c >= vd) continue;
				float uk = 0, uq = 0;
#pragma unroll 8
				for (i32 j = 0; j < n; j++) {
					const float u = us[(u64)rec[j] * vd + c];
					uk = fmaf(kk[j], u, uk);
					uq = fmaf(qk[j], u, uq);
				}
				const float u = beta * (v[r][c] - fade * sk[x][r] - uk), y = fmaf(fade, sq[x][r], fmaf(qk[n], u, uq));
				u_rec[(u64)slot * vd + c] = u;
				us[(u64)slot * vd + c] = u;
				o[c] = y;
				squares = fmaf(y, y, squares);
			}
			for (i32 j = tid; j < kd; j += THREADS) keys[slot * kd + j] = k[r][j];
			if (tid == 0) {
				g_ring[slot] = sum;
				g_rec[slot] = sum;
			}
			squares = block_sum(squares, red);
			const float inv = 1.0f / sqrtf(squares / (float)vd + a.eps);
			u16* dst = a.dst.row(row) + h * vd;
#pragma unroll
			for (i32 x = 0; x < COLS; x++) {
				const i32 c = tid + x * THREADS;
				if (c < vd) dst[c] = f2bf((a.nw ? o[c] * inv * a.nw[c] : o[c]) * activate(a.gate, gate[x]));
			}
			// The next border's state, by the row that can be committed there.
			if (n == WINDOW - 1 && pos == s.start + i + r)
				fold(state + (base / WINDOW + 1) % 2 * a.half_state, S, fade, decay, rec, keys, us, kd, vd);
		}
		__syncthreads();
	}
	if (h == 0 && tid == 0) atomicAdd(&a.e.work[WORK_DELTA_ROWS], (u64)s.len);
}

// Keeps what later steps need of a span and the heads of delta share: the key
// records and the convolution's inputs. One block per row, after delta.
KERNEL(delta_keep, DeltaArgs) {
	__shared__ float k[WARPS][MAX_DIM];
	__shared__ i32 src[MAX_TAPS];
	const i32 r = blockIdx.x, tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, kd = a.k_dim;
	const i32 k_all = a.k_heads * kd, channels = 2 * k_all + a.v_heads * a.v_dim;
	Span s;
	if (!span_of(a.e, a.b, a.slots, r, s) || s.row < s.len - a.ring) return;
	if (tid == 0) sources(a, s, src);
	__syncthreads();
	float* rec = a.k_rec + s.slot * a.slot_rec + (u64)((s.start + s.row) % a.ring) * k_all;
	for (i32 h = warp; h < a.k_heads; h += WARPS) {
#pragma unroll 4
		for (i32 i = lane; i < kd; i += 32) k[warp][i] = convolve(a, s, s.pos, src, channels, k_all + h * kd + i);
		__syncwarp();
		unit(k[warp], kd, 1.0f, lane);
		for (i32 i = lane; i < kd; i += 32) rec[h * kd + i] = k[warp][i];
		__syncwarp();
	}
}

// Keeps the convolution's inputs, after delta_keep has read the old ones.
KERNEL(delta_inputs, DeltaArgs) {
	const i32 r = blockIdx.x;
	Span s;
	if (!span_of(a.e, a.b, a.slots, r, s) || s.row < s.len - a.conv_ring) return;
	const i32 channels = 2 * a.k_heads * a.k_dim + a.v_heads * a.v_dim;
	u16* ring = a.conv + s.slot * a.slot_conv + (u64)((s.start + s.row) % a.conv_ring) * channels;
	const u16* x = a.proj.row(r);
	for (i32 i = threadIdx.x; i < channels; i += THREADS) ring[i] = x[i];
}
