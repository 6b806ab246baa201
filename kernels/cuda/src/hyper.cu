// Coefficients of residual streams, the SwiGLU with a limit, and the rotation of heads.

enum { MAX_STREAMS = 8, MAX_COEFFICIENTS = MAX_STREAMS * (2 + MAX_STREAMS) };

struct HyperArgs {
	Env e;
	View<float> dst;
	View<u16> x;
	const float *fn, *base, *scale;
	float norm_eps, eps;
	i32 streams, iters, cols, n; // cols of x, n coefficients
};
LAYOUT(HyperArgs, hyper);

// balance divides each of n lines by its sum + eps.
INLINE void balance(float* m, i32 n, i32 lines, i32 elements, float eps) {
	for (i32 i = 0; i < n; i++) {
		float sum = 0;
		for (i32 j = 0; j < n; j++) sum += m[i * lines + j * elements];
		for (i32 j = 0; j < n; j++) m[i * lines + j * elements] /= sum + eps;
	}
}

// One block per row; warps take coefficients in turns, lanes columns.
KERNEL(hyper, HyperArgs) {
	__shared__ float red[THREADS], m[MAX_COEFFICIENTS];
	const i32 r = blockIdx.x, tid = threadIdx.x, lane = tid & 31, n = a.streams;
	const u16* x = a.x.row(r);
	float s = 0;
	for (i32 i = tid; i < a.cols; i += THREADS) {
		const float v = bf2f(x[i]);
		s = fmaf(v, v, s);
	}
	const float rms = 1.0f / sqrtf(block_sum(s, red) / (float)a.cols + a.norm_eps);
	for (i32 i = tid >> 5; i < a.n; i += WARPS) {
		const float* fn = a.fn + (u64)i * a.cols;
		float dot = 0;
		for (i32 c = lane; c < a.cols; c += 32) dot = fmaf(bf2f(x[c]), fn[c], dot);
		dot = warp_sum(dot);
		if (lane != 0) continue;
		const i32 part = min(i / n, 2);
		const float v = dot * rms * a.scale[part] + a.base[i];
		m[i] = part == 0 ? sigmoid(v) + a.eps : part == 1 ? 2.0f * sigmoid(v) : v;
	}
	__syncthreads();
	if (tid == 0 && a.iters > 0) {
		float* comb = m + 2 * n;
		for (i32 j = 0; j < n; j++) {
			float* row = comb + j * n;
			float top = row[0], sum = 0;
			for (i32 k = 1; k < n; k++) top = fmaxf(top, row[k]);
			for (i32 k = 0; k < n; k++) sum += row[k] = expf(row[k] - top);
			for (i32 k = 0; k < n; k++) row[k] = row[k] / sum + a.eps;
		}
		for (i32 it = 0; it < a.iters; it++) {
			if (it > 0) balance(comb, n, n, 1, a.eps);
			balance(comb, n, 1, n, a.eps);
		}
	}
	__syncthreads();
	for (i32 i = tid; i < a.n; i += THREADS) a.dst.row(r)[i] = m[i];
}

struct GateUpArgs {
	Env e;
	View<u16> dst;
	View<float> x;
	float limit; // 0: none
	i32 cols;
};
LAYOUT(GateUpArgs, gate_up);

// One block per row.
KERNEL(gate_up, GateUpArgs) {
	const float* x = a.x.row(blockIdx.x);
	u16* dst = a.dst.row(blockIdx.x);
	for (i32 i = threadIdx.x; i < a.cols; i += THREADS) {
		float g = x[i], u = x[a.cols + i];
		if (a.limit > 0) {
			g = g > a.limit ? a.limit : g; // a NaN stays one
			u = u > a.limit ? a.limit : u < -a.limit ? -a.limit : u;
		}
		dst[i] = f2bf(silu(g) * u);
	}
}

struct RotateArgs {
	Env e;
	View<u16> dst, src;
	Table pos, span;
	const float* rope;
	float eps;
	i32 heads, dim, rotary, rope_rows, inverse, unit, ratio, round, pad;
};
LAYOUT(RotateArgs, rotate);

enum { ROUND_NONE, ROUND_FP8, ROUND_FP4, ROUND_FP4_FINE };

// power_above is the least power of two that is not below v, a normal number.
INLINE float power_above(float v) {
	const u32 u = __float_as_uint(v);
	return __uint_as_float((u + 0x7fffffu) & 0x7f800000u);
}

// nearest is the number of a small format nearest to v: digits of fraction, equal
// steps below 2^least.
INLINE float nearest(float v, i32 least, i32 digits) {
	const i32 e = max((i32)(__float_as_uint(v) >> 23 & 255) - 127, least) - digits;
	const float step = __uint_as_float((u32)(e + 127) << 23);
	return rintf(v / step) * step;
}

// round_head rounds n channels in place, by one warp.
INLINE void round_head(u16* x, i32 n, i32 round, i32 lane) {
	const i32 block = round == ROUND_FP4_FINE ? 16 : 32;
	if (n % block != 0) return;
	for (i32 at = 0; at < n; at += block) {
		const float v = lane < block ? bf2f(x[at + lane]) : 0.0f;
		float top = fabsf(v);
		for (i32 o = 16; o > 0; o >>= 1) top = fmaxf(top, __shfl_xor_sync(~0u, top, o));
		const float most = round == ROUND_FP8 ? 448.0f : 6.0f;
		float scale;
		if (round == ROUND_FP8) scale = power_above(fmaxf(top, 1e-4f) / 448.0f);
		else if (round == ROUND_FP4) scale = power_above(fmaxf(top, 0x1.8p-124f) / 6.0f);
		else scale = nearest(fminf(fmaxf(top, 0x1.8p-7f) / 6.0f, 448.0f), -6, 3);
		const float q = fminf(fmaxf(v / scale, -most), most);
		const float y = round == ROUND_FP8 ? nearest(q, -6, 3) : nearest(q, 0, 1);
		if (lane < block && v == v) x[at + lane] = f2bf(y * scale);
	}
}

// One block per row; warps take heads in turns.
KERNEL(rotate, RotateArgs) {
	const i32 r = blockIdx.x, lane = threadIdx.x & 31, half = a.rotary / 2, plain = a.dim - a.rotary;
	i32 pos = a.pos.at(r);
	if (a.span.at(r) < 0 || (a.ratio > 0 && (pos + 1) % a.ratio != 0)) return;
	if (a.ratio > 0) pos -= a.ratio - 1;
	if (pos < 0 || pos >= a.rope_rows) {
		if (threadIdx.x == 0) fail(a.e, FAULT_ROPE, r, pos, a.rope_rows);
		return;
	}
	const float* cs = a.rope + (u64)pos * a.rotary;
	for (i32 h = threadIdx.x >> 5; h < a.heads; h += WARPS) {
		const u16* x = a.src.row(r) + h * a.dim;
		u16* y = a.dst.row(r) + h * a.dim;
		const float s = a.unit ? rms_scale(a.dim, a.eps, lane, [=](i32 i) { return bf2f(x[i]); }) : 1.0f;
		__syncwarp();
		for (i32 i = lane; i < plain; i += 32) y[i] = f2bf(bf2f(x[i]) * s);
		for (i32 i = lane; i < half; i += 32) {
			const float c = cs[i], n = a.inverse ? -cs[half + i] : cs[half + i];
			const float u = bf2f(x[plain + 2 * i]) * s, v = bf2f(x[plain + 2 * i + 1]) * s;
			y[plain + 2 * i] = f2bf(u * c - v * n);
			y[plain + 2 * i + 1] = f2bf(v * c + u * n);
		}
		__syncwarp();
		if (a.round != ROUND_NONE) round_head(y, a.dim, a.round, lane);
	}
}
