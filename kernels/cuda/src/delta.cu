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

enum { MAX_DIM = 256, MAX_TAPS = 8 };

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
	i32 ring, conv_ring, slots, pad;
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
INLINE float convolve(const DeltaArgs& a, const Span& s, const i32* src, i32 channels, i32 ch) {
	float acc = 0;
	for (i32 j = 0; j < a.taps_n; j++) {
		const i32 m = a.taps_n - 1 - j;
		float x = 0;
		if (src[m] >= 0) x = bf2f(a.proj.row(src[m])[ch]);
		else if (src[m] == FROM_RING) x = bf2f(a.conv[s.slot * a.slot_conv + (u64)((s.pos - m) % a.conv_ring) * channels + ch]);
		acc = fmaf(a.taps[(u64)ch * a.taps_n + j], x, acc);
	}
	return silu(acc);
}

// unit forms one normalised head of q or k, from channel c0 on, in out.
INLINE void unit(const DeltaArgs& a, const Span& s, const i32* src, i32 channels, i32 c0, float scale, float* out, float* red) {
	float sum = 0;
	for (i32 i = threadIdx.x; i < a.k_dim; i += THREADS) {
		float v = convolve(a, s, src, channels, c0 + i);
		out[i] = v;
		sum = fmaf(v, v, sum);
	}
	sum = block_sum(sum, red);
	const float inv = 1.0f / sqrtf(sum + 1e-6f);
	for (i32 i = threadIdx.x; i < a.k_dim; i += THREADS) out[i] = out[i] * inv * scale;
	__syncthreads();
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
INLINE float folded(const float* S, float fade, const float* decay, const i32* rec, const float* keys, const float* u_rec, i32 kd, i32 vd, i32 j, i32 c) {
	float w = S ? fade * S[(u64)j * vd + c] : 0.0f;
	for (i32 t = 0; t < WINDOW; t++) w = fmaf(decay[t] * keys[rec[t] * kd + j], u_rec[(u64)rec[t] * vd + c], w);
	return w;
}

// One block per (value head, span), row after row. Shared memory holds the keys
// of the ring.
KERNEL(delta, DeltaArgs) {
	extern __shared__ float keys[]; // [ring, k_dim]
	__shared__ float q[MAX_DIM], k[MAX_DIM], v[MAX_DIM], o[MAX_DIM], red[THREADS];
	__shared__ float g_ring[2 * WINDOW], kk[WINDOW], qk[WINDOW], decay[WINDOW], last_decay[WINDOW];
	__shared__ i32 rec[WINDOW], last[WINDOW], src[MAX_TAPS];
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
	for (i32 p = s.start / WINDOW * WINDOW; p < s.start; p++) {
		const i32 e = p % a.ring;
		const float* kr = a.k_rec + s.slot * a.slot_rec + ((u64)e * a.k_heads + kh) * kd;
		for (i32 i = tid; i < kd; i += THREADS) keys[e * kd + i] = kr[i];
		if (tid == 0) g_ring[e] = g_rec[e];
	}
	const float rate = -expf(a.a_log[h]), bias = a.dt_bias[h];
	for (i32 i = 0; i < s.len; i++) {
		__syncthreads();
		if (!row_of(a.e, a.b, s, i)) return;
		const i32 r = s.off + i, base = s.pos / WINDOW * WINDOW, n = s.pos - base, slot = (s.start + i) % a.ring;
		if (tid == 0) {
			sources(a, s, src);
			rec[n] = slot;
		}
		records(a, s, tree, rec, last);
		__syncthreads();
		unit(a, s, src, channels, kh * kd, a.q_scale, q, red);
		unit(a, s, src, channels, k_all + kh * kd, 1.0f, k, red);
		for (i32 c = tid; c < vd; c += THREADS) v[c] = convolve(a, s, src, channels, 2 * k_all + h * vd + c);
		const u16* x = a.proj.row(r) + channels + v_all;
		const float beta = sigmoid(bf2f(x[h])), g = rate * softplus(bf2f(x[a.v_heads + h]) + bias);
		const float sum = (n > 0 ? g_ring[rec[n - 1]] : 0.0f) + g, fade = expf(sum);
		for (i32 j = warp; j < n; j += WARPS) {
			const float* kj = keys + rec[j] * kd;
			float dk = dot(k, kj, kd, lane), dq = dot(q, kj, kd, lane), w = expf(sum - g_ring[rec[j]]);
			if (lane == 0) {
				decay[j] = w;
				kk[j] = w * dk;
				qk[j] = w * dq;
			}
		}
		if (warp == 0) {
			float self = dot(q, k, kd, lane);
			if (lane == 0) {
				decay[n] = 1.0f;
				qk[n] = self;
			}
		}
		__syncthreads();
		// A row of a tree beyond a border has a state of its own, folded along
		// its path; all others read the border's.
		const bool own = tree && base > s.start;
		const float* const half[2] = {state, state + a.half_state};
		const float* S = base > 0 ? half[base / WINDOW % 2] : nullptr;
		const float* before = base > WINDOW ? half[(base / WINDOW + 1) % 2] : nullptr;
		float last_fade = 0;
		if (own) {
			const float end = g_ring[last[WINDOW - 1]];
			last_fade = expf(end);
			for (i32 t = tid; t < WINDOW; t += THREADS) last_decay[t] = expf(end - g_ring[last[t]]);
			__syncthreads();
		}
		float squares = 0;
		for (i32 c = tid; c < vd; c += THREADS) {
			float sk = 0, sq = 0, uk = 0, uq = 0;
			if (S) {
				for (i32 j = 0; j < kd; j++) {
					float w = own ? folded(before, last_fade, last_decay, last, keys, u_rec, kd, vd, j, c) : S[(u64)j * vd + c];
					sk = fmaf(k[j], w, sk);
					sq = fmaf(q[j], w, sq);
				}
			}
			for (i32 j = 0; j < n; j++) {
				float u = u_rec[(u64)rec[j] * vd + c];
				uk = fmaf(kk[j], u, uk);
				uq = fmaf(qk[j], u, uq);
			}
			const float u = beta * (v[c] - fade * sk - uk), y = fmaf(fade, sq, fmaf(qk[n], u, uq));
			u_rec[(u64)slot * vd + c] = u;
			o[c] = y;
			squares = fmaf(y, y, squares);
		}
		for (i32 j = tid; j < kd; j += THREADS) keys[slot * kd + j] = k[j];
		if (tid == 0) {
			g_ring[slot] = sum;
			g_rec[slot] = sum;
		}
		squares = block_sum(squares, red);
		const float inv = 1.0f / sqrtf(squares / (float)vd + a.eps);
		const u16* z = a.proj.row(r) + channels + h * vd;
		u16* dst = a.dst.row(r) + h * vd;
		for (i32 c = tid; c < vd; c += THREADS) {
			float y = a.nw ? o[c] * inv * a.nw[c] : o[c];
			dst[c] = f2bf(y * activate(a.gate, bf2f(z[c])));
		}
		// The next border's state, by the row that can be committed there.
		if (n != WINDOW - 1 || s.pos != s.start + i) continue;
		float* next = state + (base / WINDOW + 1) % 2 * a.half_state;
		for (i32 c = tid; c < vd; c += THREADS)
			for (i32 j = 0; j < kd; j++) next[(u64)j * vd + c] = folded(S, fade, decay, rec, keys, u_rec, kd, vd, j, c);
	}
	if (h == 0 && tid == 0) atomicAdd(&a.e.work[WORK_DELTA_ROWS], (u64)s.len);
}

// Keeps what later steps need of a span and the heads of delta share: the key
// records and the convolution's inputs. One block per row, after delta.
KERNEL(delta_keep, DeltaArgs) {
	__shared__ float k[MAX_DIM], red[THREADS];
	__shared__ i32 src[MAX_TAPS];
	const i32 r = blockIdx.x, tid = threadIdx.x, kd = a.k_dim;
	const i32 k_all = a.k_heads * kd, channels = 2 * k_all + a.v_heads * a.v_dim;
	Span s;
	if (!span_of(a.e, a.b, a.slots, r, s)) return;
	if (tid == 0) sources(a, s, src);
	__syncthreads();
	if (s.row >= s.len - a.ring) {
		float* rec = a.k_rec + s.slot * a.slot_rec + (u64)((s.start + s.row) % a.ring) * k_all;
		for (i32 h = 0; h < a.k_heads; h++) {
			unit(a, s, src, channels, k_all + h * kd, 1.0f, k, red);
			for (i32 i = tid; i < kd; i += THREADS) rec[h * kd + i] = k[i];
			__syncthreads();
		}
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
