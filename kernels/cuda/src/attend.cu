// Attention for heads of any width, without tensor cores: attend_tiles has the form
// for the usual ones. Splits have SPLIT keys.

// Appends keys and values at the rows' places and, where attend_tiles comes next,
// leaves the queries in dst as they enter products: grid (rows, heads / WARPS), a
// warp for each head.
KERNEL(attend_append, AttendArgs) {
	__shared__ float bufs[WARPS][MAX_HEAD];
	const i32 r = blockIdx.x, warp = threadIdx.x >> 5, lane = threadIdx.x & 31, heads = a.queries ? a.q_heads : 0;
	const i32 h = blockIdx.y * WARPS + warp;
	float* buf = bufs[warp];
	Span s;
	if (h >= heads + a.kv_heads || !span_of(a.e, a.b, a.slots, r, s)) return;
	if (h == 0 && lane == 0) {
		atomicAdd(&a.e.work[WORK_ATTEND_ROWS], 1ull);
		atomicAdd(&a.e.work[WORK_KV_TOKENS], (u64)max(0, s.pos + 1 - a.first));
	}
	if (h < heads) {
		head_row(a, buf, query_in(a, r, h), r, s.pos, true, lane);
		u16* q = a.dst.row(r) + h * a.dim;
		for (i32 i = lane; i < a.dim; i += 32) q[i] = f2bf(buf[i]);
		return;
	}
	const i32 kvh = h - heads;
	const long long at = cached(a, s.slot, s.start + s.row, kvh);
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
	const u16* qx = query_in(a, r, h);
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
