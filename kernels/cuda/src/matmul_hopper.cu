// The matrix product for compute capability 9.0: rows of x are the M operand of wgmma
// m64nNk16 or mma.sync m16n8k16, weights the N operand, both read from shared memory
// where the copy engine (TMA) puts them. K is walked upwards in steps of 16 with FP32
// accumulators, as the form of matmul.cu does; all give the same bits.
//
// The tiles of the result, each of all of K, are laid out in a row and cut into as many
// equal lengths as there are blocks. A block first computes the beginning of the tile
// in which its length ends and hands the accumulators on; then whole tiles; and last
// the end of the tile in which its length begins, going on from the accumulators of the
// block before it, which were ready long ago. So every block has the same work,
// whatever the shape, and no sum is ever split.
//
// One warp feeds a ring of stages. Of many rows, two groups of 128 threads multiply 64
// rows each by wgmma; of at most 64, warps multiply all rows by 16 rows of weights each
// by mma.sync, whose sums follow one another faster. Weights are asked for before the
// kernel in front has finished.

struct alignas(64) Map { u64 d[16]; };

struct HopperArgs {
	Env e;
	u64 pad[5];
	Map w, x; // boxes of 64 columns
	Product p;
	float* partial; // accumulators that a block hands on
	volatile i32* flags; // of a block: they are there
	i32 mtile; // rows of a tile, a multiple of 8
	i32 stages;
	i32 split; // tiles may be cut; else they are dealt out in turns
	Table ids; // grouped, where nothing was sorted (p.chunks is null): [rows, each_id]
	i32 each_id, experts;
	i32 pad1[6];
};
LAYOUT(HopperArgs, matmul_hopper);

enum { MAX_STAGES = 32, BARRIERS = 1024, STRIP = 16, PITCH = 40, PARTIAL = 128 << 10 };

// same tells the compiler that all lanes of a warp have the value.
INLINE i32 same(i32 v) { return __shfl_sync(~0u, v, 0); }

INLINE u32 smem_of(const void* p) { return (u32)__cvta_generic_to_shared(p); }

INLINE void barrier_init(u32 b, i32 n) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(b), "r"(n)); }
INLINE void barrier_expect(u32 b, i32 bytes) {
	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(b), "r"(bytes) : "memory");
}
INLINE void barrier_arrive(u32 b) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(b) : "memory"); }
INLINE void barrier_wait(u32 b, u32 phase) {
	asm volatile(
	    "{\n.reg .pred p;\nW: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra D;\nbra W;\nD:\n}" ::"r"(b), "r"(phase)
	    : "memory");
}
INLINE void threads_sync(i32 n) { asm volatile("bar.sync 1, %0;" ::"r"(n) : "memory"); }

// box copies the box of a map that begins at a column and a row.
INLINE void box(u32 dst, const Map& m, i32 col, i32 row, u32 barrier) {
	asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(dst),
	    "l"(&m), "r"(col), "r"(row), "r"(barrier)
	    : "memory");
}

INLINE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
INLINE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> INLINE void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }

// operand describes rows of 128 bytes in shared memory, swizzled over 8 rows, whose
// groups of 8 lie 1024 bytes apart. low is place's.
INLINE u64 operand(u32 low) { return (u64)0x40000040u << 32 | low; }
INLINE u32 place(u32 at) { return (at >> 4 & 0x3fff) | 0x10000; }

#define R4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define R16(d, i) R4(d, i), R4(d, i + 4), R4(d, i + 8), R4(d, i + 12)
#define T10(t) "%" t "0,%" t "1,%" t "2,%" t "3,%" t "4,%" t "5,%" t "6,%" t "7,%" t "8,%" t "9"
#define WGMMA(n, names, wa, wb, ...)                                                                                     \
	asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" names "}, %" wa ", %" wb ", 1, 1, 1, 0, 0;" \
	             : __VA_ARGS__                                                                                           \
	             : "l"(a), "l"(b))

// wgmma adds the product of 64 x 16 and N x 16 to d.
template <int N> INLINE void wgmma(float* d, u64 a, u64 b) {
	if constexpr (N == 64) WGMMA(64, T10("") "," T10("1") "," T10("2") ",%30,%31", "32", "33", R16(d, 0), R16(d, 16));
	if constexpr (N == 128)
		WGMMA(128, T10("") "," T10("1") "," T10("2") "," T10("3") "," T10("4") "," T10("5") ",%60,%61,%62,%63", "64", "65", R16(d, 0),
		    R16(d, 16), R16(d, 32), R16(d, 48));
	if constexpr (N == 256)
		WGMMA(256,
		    T10("") "," T10("1") "," T10("2") "," T10("3") "," T10("4") "," T10("5") "," T10("6") "," T10("7") "," T10("8") "," T10("9") "," T10(
		        "10") "," T10("11") ",%120,%121,%122,%123,%124,%125,%126,%127",
		    "128", "129", R16(d, 0), R16(d, 16), R16(d, 32), R16(d, 48), R16(d, 64), R16(d, 80), R16(d, 96), R16(d, 112));
}

// Cut is the shape of a stage: rows of weights, and boxes of 64 columns.
template <int WIDTH, int DEEP> struct Cut {
	enum { NB = WIDTH, BOXES = DEEP, DEPTH = 64 * DEEP };
};

// Tile is a tile of the result: rows and weights.
struct Tile {
	i32 row, rows; // of x or, grouped, of the order
	i32 out; // first output, of its block
	i32 weight; // first row of its matrix among all
	i32 block; // of a diagonal
};

// Plan is the work of this block. Where tiles are cut, and rows make several of them, a
// block keeps to its rows, and those beside it read the same weights at the same time.
struct Plan {
	i32 tiles, across, down; // that blocks share; of outputs; of rows
	i32 steps; // stages that a tile takes
	i32 from, to; // in steps, where tiles are cut
	i32 apart; // from a block to the one that goes on where it ends
};

struct Piece { i32 tile, from, to; };

template <class C> INLINE Plan plan_of(const HopperArgs& a) {
	const Product& p = a.p;
	Plan o;
	const i32 outs = p.paired ? C::NB / 2 : C::NB;
	o.across = (p.n + outs - 1) / outs * p.blocks;
	o.down = p.chunks ? same(*p.count) : p.order ? p.rows : (p.rows + a.mtile - 1) / a.mtile;
	o.apart = p.order || !a.split ? 1 : o.down;
	o.tiles = o.across * o.down / o.apart;
	const i32 g = gridDim.x / o.apart, b = blockIdx.x / o.apart;
	o.steps = (p.k + C::DEPTH - 1) / C::DEPTH;
	o.from = o.to = 0;
	if (a.split && b < g && o.tiles >= g) {
		o.from = (i32)((u64)o.tiles * o.steps * b / g);
		o.to = (i32)((u64)o.tiles * o.steps * (b + 1) / g);
	} else if (a.split) {
		o.from = min(b, o.tiles) * o.steps;
		o.to = min(b + 1, o.tiles) * o.steps;
	}
	return o;
}

// piece finds the i-th piece of a block's work; false: there are fewer.
INLINE bool piece(const HopperArgs& a, const Plan& p, i32 i, Piece& o) {
	if (!a.split) {
		o.tile = blockIdx.x + i * gridDim.x, o.from = 0, o.to = p.steps;
		return o.tile < p.tiles;
	}
	const i32 last = p.to / p.steps, head = p.to % p.steps, first = (p.from + p.steps - 1) / p.steps;
	if (head) {
		if (i == 0) {
			o.tile = last, o.from = 0, o.to = head;
			return true;
		}
		i--;
	}
	o.from = 0, o.to = p.steps, o.tile = first + i;
	if (o.tile < last) return true;
	o.tile = first - 1, o.from = p.from % p.steps;
	return o.from > 0 && i == max(last - first, 0);
}

// chunk_of is a chunk of a grouped product; where nothing was sorted, a pair by itself.
INLINE Chunk chunk_of(const HopperArgs& a, i32 i) {
	if (a.p.chunks) return a.p.chunks[i];
	i32 e = a.ids.row(i / a.each_id)[i % a.each_id];
	if (e < 0 || e >= a.experts) {
		fail(a.e, FAULT_INDEX, i / a.each_id, e, a.experts);
		e = 0;
	}
	return {e, i, 1, 0};
}

// pair_of says which pair stands at a place of a grouped product.
INLINE i32 pair_of(const Product& p, i32 place) { return p.chunks ? p.order[place] : place; }

template <class C> INLINE Tile tile_of(const HopperArgs& a, const Plan& pl, i32 t) {
	const Product& p = a.p;
	const i32 outs = p.paired ? C::NB / 2 : C::NB, per = pl.across / p.blocks;
	Tile o;
	i32 across, down;
	if (p.order) {
		down = t / pl.across, across = t % pl.across;
	} else if (a.split) {
		down = blockIdx.x % pl.down, across = t;
	} else { // strips of rows, so that what runs at a time shares rows and weights
		const i32 strip = t / (STRIP * pl.across), in = t % (STRIP * pl.across), high = min(STRIP, pl.down - strip * STRIP);
		down = strip * STRIP + in % high, across = in / high;
	}
	o.block = across / per;
	o.out = across % per * outs;
	if (p.order) {
		const Chunk c = chunk_of(a, down);
		o.row = c.start, o.rows = c.count;
		o.weight = c.expert * p.n * (p.paired ? 2 : 1);
	} else {
		o.row = down * a.mtile, o.rows = min(a.mtile, p.rows - o.row);
		o.weight = o.block * p.n;
	}
	return o;
}

// Ring is the place of stages in shared memory.
struct Ring {
	u32 base; // barriers, then stages
	i32 bytes, rows; // of a stage; of x in a box
	__device__ __forceinline__ u32 full(i32 s) const { return base + 8 * s; }
	__device__ __forceinline__ u32 empty(i32 s) const { return base + 8 * (MAX_STAGES + s); }
	__device__ __forceinline__ u32 x(i32 s, i32 b) const { return base + BARRIERS + s * bytes + b * rows * 128; }
};

// Walk goes through the stages of a block's work.
template <class C> struct Walk {
	const HopperArgs& a;
	const Plan& p;
	i32 i, step;
	Piece at;
	Tile t;
	i32 rows[4]; // grouped: of x, that this lane asks for
	bool more;
	__device__ __forceinline__ Walk(const HopperArgs& a, const Plan& p) : a(a), p(p), i(0) { open(); }
	__device__ __forceinline__ void open() {
		more = piece(a, p, i, at);
		if (!more) return;
		step = at.from;
		t = tile_of<C>(a, p, at.tile);
		if (!a.p.order) return;
#pragma unroll
		for (int j = 0; j < 4; j++) {
			const i32 in = threadIdx.x % 32 + 32 * j;
			rows[j] = in < t.rows ? pair_of(a.p, t.row + in) / a.p.each : 0;
		}
	}
	__device__ __forceinline__ void next() {
		if (++step < at.to) return;
		i++;
		open();
	}
};

// A feeder asks for what a stage holds.
template <class C> INLINE void ask_weights(const HopperArgs& a, const Ring& r, i32 s, const Walk<C>& w) {
	const i32 rows = a.p.order ? w.t.rows : r.rows;
	barrier_expect(r.full(s), (C::NB + rows) * 128 * C::BOXES);
	const u32 to = r.x(s, C::BOXES);
#pragma unroll
	for (int b = 0; b < C::BOXES; b++) {
		const i32 k = w.step * C::DEPTH + 64 * b;
		box(to + b * C::NB * 128, a.w, k, w.t.weight + w.t.out, r.full(s));
		if (a.p.paired) box(to + b * C::NB * 128 + C::NB * 64, a.w, k, w.t.weight + a.p.n + w.t.out, r.full(s));
	}
}

template <class C> INLINE void ask_rows(const HopperArgs& a, const Ring& r, i32 s, const Walk<C>& w, i32 lane) {
	const i32 lead = w.t.block * a.p.k + w.step * C::DEPTH;
	if (!a.p.order) {
		if (lane == 0)
			for (int b = 0; b < C::BOXES; b++) box(r.x(s, b), a.x, lead + 64 * b, w.t.row, r.full(s));
		return;
	}
#pragma unroll
	for (int j = 0; j < 4; j++) {
		const i32 in = lane + 32 * j;
		if (in >= w.t.rows) break;
		for (int b = 0; b < C::BOXES; b++) box(r.x(s, b) + in * 128, a.x, lead + 64 * b, w.rows[j], r.full(s));
	}
}

template <class C> INLINE void feed(const HopperArgs& a, const Ring& r, i32 lane) {
	// Which weights a grouped product reads, the kernel in front may have decided.
	if (a.p.order) after_kernel_in_front();
	const Plan p = plan_of<C>(a);
	Walk<C> w(a, p), x = w;
	i32 ahead = 0;
	for (; ahead < a.stages && w.more; ahead++, w.next())
		if (lane == 0) ask_weights<C>(a, r, ahead, w);
	__syncwarp();
	if (!a.p.order) after_kernel_in_front();
	for (i32 s = 0; s < ahead; s++, x.next()) ask_rows<C>(a, r, s, x, lane);
	i32 s = 0;
	u32 phase = 0;
	for (; w.more; w.next()) {
		if (lane == 0) {
			barrier_wait(r.empty(s), phase);
			ask_weights<C>(a, r, s, w);
		}
		__syncwarp();
		ask_rows<C>(a, r, s, w, lane);
		if (++s == a.stages) s = 0, phase ^= 1;
	}
}

// Accumulators pass through memory, exactly: n of each of so many threads.
INLINE float4* handed(const HopperArgs& a, i32 block) { return (float4*)((u8*)a.partial + (u64)block * PARTIAL) + threadIdx.x; }

template <int N> INLINE void hand_on(const HopperArgs& a, const float* acc, i32 threads) {
	float4* to = handed(a, blockIdx.x);
#pragma unroll
	for (int i = 0; i < N / 4; i++) to[i * threads] = make_float4(acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3]);
	__threadfence();
	threads_sync(threads);
	if (threadIdx.x == 0) a.flags[blockIdx.x] = 1;
}

template <int N> INLINE void go_on(const HopperArgs& a, float* acc, i32 block, i32 threads) {
	while (a.flags[block] == 0) {}
	__threadfence();
	const float4* from = handed(a, block);
#pragma unroll
	for (int i = 0; i < N / 4; i++) {
		const float4 v = __ldcg(from + i * threads);
		acc[4 * i] = v.x, acc[4 * i + 1] = v.y, acc[4 * i + 2] = v.z, acc[4 * i + 3] = v.w;
	}
	threads_sync(threads);
	if (threadIdx.x == 0) a.flags[block] = 0;
}

template <int NB> INLINE void keep(float* acc) {
#pragma unroll
	for (int i = 0; i < NB / 2; i++) asm volatile("" : "+f"(acc[i])::"memory");
}

// finish brings a tile's outputs out, 32 columns of 16 rows of a warp at a time, through
// shared memory, so that a lane has neighbouring ones. Of a paired tile the columns are
// 16 gates and their 16 of up.
template <int NB> INLINE void finish(const HopperArgs& a, const Tile& t, const float* acc, float* mine, i32 group) {
	const Product& p = a.p;
	const i32 lane = threadIdx.x & 31, lanes = p.paired ? 4 : 8, first = group * 64 + (threadIdx.x >> 5 & 3) * 16;
	if (first >= t.rows) return;
	float *own = mine + lane % lanes * 4, *laid = mine + (lane >> 2) * PITCH + 2 * (lane & 3);
#pragma unroll
	for (int j = 0; j < NB / 32; j++) {
#pragma unroll
		for (int q = 0; q < 4; q++) {
			const int plain = 4 * (4 * j + q), pair = 4 * (q < 2 ? 2 * j + q : NB / 16 + 2 * j + q - 2);
			*(float2*)(laid + 8 * q) = p.paired ? make_float2(acc[pair], acc[pair + 1]) : make_float2(acc[plain], acc[plain + 1]);
			*(float2*)(laid + 8 * q + 8 * PITCH) = p.paired ? make_float2(acc[pair + 2], acc[pair + 3]) : make_float2(acc[plain + 2], acc[plain + 3]);
		}
		__syncwarp();
		const i32 c = t.out + j * lanes * 4 + lane % lanes * 4;
#pragma unroll 1
		for (i32 in = lane / lanes; in < 16 && first + in < t.rows && c < p.n; in += 32 / lanes) {
			float4 y = *(const float4*)(own + in * PITCH);
			if (p.paired) {
				const float4 u = *(const float4*)(own + in * PITCH + 4 * lanes);
				y = make_float4(silu(y.x) * u.x, silu(y.y) * u.y, silu(y.z) * u.z, silu(y.w) * u.w);
			} else if (p.bias || p.act) {
				y = make_float4(surround(p, c, y.x), surround(p, c + 1, y.y), surround(p, c + 2, y.z), surround(p, c + 3, y.w));
			}
			const i32 at = t.row + first + in;
			put4(p, p.order ? pair_of(p, at) / p.spread : at, t.block * p.n + c, y);
		}
		__syncwarp();
	}
}

// Of many rows: MANY, by GROUPS groups of 64.
enum { GROUPS = 2, MANY = 64 * GROUPS };

template <class C> INLINE void consume_wide(const HopperArgs& a, const Ring& r, float* mine, i32 group) {
	enum { NB = C::NB };
	after_kernel_in_front();
	const Plan p = plan_of<C>(a);
	i32 s = 0;
	u32 phase = 0;
	Piece at;
	float acc[NB / 2];
	const u32 stride = r.bytes / 16;
	const u32 x0 = same(place(r.x(0, 0) + group * 8192)), w0 = same(place(r.x(0, C::BOXES)));
	u32 x = x0, w = w0;
	for (i32 i = 0; piece(a, p, i, at); i++) {
#pragma unroll
		for (int j = 0; j < NB / 2; j++) acc[j] = 0;
		if (at.from) go_on<NB / 2>(a, acc, blockIdx.x - p.apart, 128 * GROUPS);
		keep<NB>(acc);
#pragma unroll 1
		for (i32 step = at.from; step < at.to; step++) {
			barrier_wait(r.full(s), phase);
			wgmma_fence();
#pragma unroll
			for (int j = 0; j < 4 * C::BOXES; j++)
				wgmma<NB>(acc, operand(x + j / 4 * (MANY * 8) + j % 4 * 2), operand(w + j / 4 * (NB * 8) + j % 4 * 2));
			wgmma_commit();
			const i32 done = s;
			if (++s == a.stages) s = 0, phase ^= 1;
			x = same(x0 + s * stride), w = same(w0 + s * stride);
			wgmma_wait<0>();
			if (threadIdx.x % 32 == 0) barrier_arrive(r.empty(done));
		}
		keep<NB>(acc);
		if (at.to < p.steps) hand_on<NB / 2>(a, acc, 128 * GROUPS);
		else finish<NB>(a, tile_of<C>(a, p, at.tile), acc, mine, group);
	}
}

// fragments loads four 8 x 8 matrices, one address of 16 bytes a lane.
INLINE void fragments(u32* f, u32 at) {
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3]) : "r"(at) : "memory");
}

// Lane is where a lane reads fragments: its rows, and the swizzled place of its columns
// in a step of a box.
struct Lane {
	u32 x, w, xk[4], wk[4];
};

// Of few rows: NB / 16 warps, each of 16 rows of weights, in a paired tile 8 of gates and
// their 8 of up. Rows are TILES times 16.
template <class C> INLINE Lane lane_of(const HopperArgs& a, const Ring& r, i32 warp) {
	const i32 l = threadIdx.x & 31, row = r.rows > 8 ? l & 15 : l & 7, half = l >> 4;
	Lane o;
	o.x = r.x(0, 0) + row * 128;
	o.w = r.x(0, C::BOXES) + ((a.p.paired ? half * (C::NB / 2) + warp * 8 : warp * 16 + half * 8) + (l & 7)) * 128;
	for (int i = 0; i < 4; i++) {
		o.xk[i] = (2 * i + half ^ row & 7) * 16;
		o.wk[i] = (2 * i + (l >> 3 & 1) ^ l & 7) * 16;
	}
	return o;
}

// multiply takes a box of a stage: 4 steps.
template <int TILES> INLINE void multiply(float acc[TILES][8], const Lane& l, u32 x, u32 w) {
#pragma unroll
	for (int i = 0; i < 4; i++) {
		u32 fw[4], fx[4];
		fragments(fw, w + l.wk[i]);
#pragma unroll
		for (int j = 0; j < TILES; j++) {
			fragments(fx, x + j * 2048 + l.xk[i]);
			mma(acc[j], fx, fw[0], fw[1]);
			mma(acc[j] + 4, fx, fw[2], fw[3]);
		}
	}
}

template <class C, int TILES> INLINE void finish_narrow(const HopperArgs& a, const Tile& t, float acc[TILES][8], i32 warp) {
	const Product& p = a.p;
	const i32 lane = threadIdx.x & 31;
#pragma unroll 1
	for (i32 i = 0; i < 2 * TILES; i++) {
		const i32 in = 8 * i + (lane >> 2);
		float y[4];
#pragma unroll
		for (int at = 0; at < 2 * TILES; at++) {
			if (at != i) continue; // registers have no index
			y[0] = acc[at / 2][at % 2 * 2], y[1] = acc[at / 2][at % 2 * 2 + 1];
			y[2] = acc[at / 2][at % 2 * 2 + 4], y[3] = acc[at / 2][at % 2 * 2 + 5];
		}
		if (in >= t.rows) continue;
		const i32 r = p.order ? pair_of(p, t.row + in) / p.spread : t.row + in;
		i32 c = t.out + warp * (p.paired ? 8 : 16) + 2 * (lane & 3);
		if (p.paired) y[0] = silu(y[0]) * y[2], y[1] = silu(y[1]) * y[3];
#pragma unroll 1
		for (i32 q = p.paired; q < 2 && c < p.n; q++, c += 8) {
			if (!p.paired) y[0] = surround(p, c, y[0]), y[1] = surround(p, c + 1, y[1]);
			put2(p, r, t.block * p.n + c, p.n - c, y[0], y[1]);
			y[0] = y[2], y[1] = y[3];
		}
	}
}

template <class C, int TILES> INLINE void consume_narrow(const HopperArgs& a, const Ring& r, i32 warp) {
	enum { THREADS_ALL = C::NB * 2 };
	const Lane l = lane_of<C>(a, r, warp);
	after_kernel_in_front();
	const Plan p = plan_of<C>(a);
	i32 s = 0;
	u32 phase = 0;
	Piece at;
	for (i32 i = 0; piece(a, p, i, at); i++) {
		float acc[TILES][8] = {};
		if (at.from) go_on<8 * TILES>(a, acc[0], blockIdx.x - p.apart, THREADS_ALL);
#pragma unroll 1
		for (i32 step = at.from; step < at.to; step++) {
			barrier_wait(r.full(s), phase);
			const u32 x = l.x + s * r.bytes, w = l.w + s * r.bytes;
			const i32 left = a.p.k - step * C::DEPTH; // K is filled up to a multiple of 64
			if (left > C::DEPTH - 64) {
#pragma unroll
				for (int b = 0; b < C::BOXES; b++) multiply<TILES>(acc, l, x + b * r.rows * 128, w + b * C::NB * 128);
			} else {
#pragma unroll 1
				for (i32 b = 0; b * 64 < left; b++) multiply<TILES>(acc, l, x + b * r.rows * 128, w + b * C::NB * 128);
			}
			__syncwarp();
			if (threadIdx.x % 32 == 0) barrier_arrive(r.empty(s));
			if (++s == a.stages) s = 0, phase ^= 1;
		}
		if (at.to < p.steps) hand_on<8 * TILES>(a, acc[0], THREADS_ALL);
		else finish_narrow<C, TILES>(a, tile_of<C>(a, p, at.tile), acc, warp);
	}
}

extern __shared__ __align__(1024) u8 shared[];

// begin makes the ring, whose stages so many warps give back.
template <class C> INLINE Ring begin(const HopperArgs& a, i32 warps) {
	Ring r;
	r.base = smem_of(shared);
	r.rows = a.mtile;
	r.bytes = (C::NB + a.mtile) * 128 * C::BOXES;
	if (threadIdx.x == 0) {
		for (i32 s = 0; s < a.stages; s++) {
			barrier_init(r.full(s), 1);
			barrier_init(r.empty(s), warps);
		}
		asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
		asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
	}
	__syncthreads();
	let_next_kernel_start();
	return r;
}

#define WIDE(name, NB, DEEP)                                                                                                  \
	extern "C" __global__ void __launch_bounds__(128 * GROUPS + 32, 1) name(const __grid_constant__ HopperArgs a) {            \
		const i32 warp = same(threadIdx.x >> 5);                                                                               \
		const Ring r = begin<Cut<NB, DEEP>>(a, 4 * GROUPS);                                                                    \
		if (warp == 4 * GROUPS) feed<Cut<NB, DEEP>>(a, r, threadIdx.x & 31);                                                   \
		else consume_wide<Cut<NB, DEEP>>(a, r, (float*)(shared + BARRIERS + a.stages * r.bytes) + warp * 16 * PITCH, warp >> 2);          \
	}
#define NARROW(name, NB, DEEP, TILES)                                                                                        \
	extern "C" __global__ void __launch_bounds__(NB * 2 + 32, 2) name(const __grid_constant__ HopperArgs a) {                  \
		const i32 warp = same(threadIdx.x >> 5);                                                                               \
		const Ring r = begin<Cut<NB, DEEP>>(a, NB / 16);                                                                       \
		if (warp == NB / 16) feed<Cut<NB, DEEP>>(a, r, threadIdx.x & 31);                                                      \
		else consume_narrow<Cut<NB, DEEP>, TILES>(a, r, warp);                                                                 \
	}

WIDE(hopper_64, 64, 2)
WIDE(hopper_128, 128, 2)
WIDE(hopper_256, 256, 1)
NARROW(hopper_16x16, 16, 4, 1)
NARROW(hopper_32x16, 32, 4, 1)
NARROW(hopper_32x32, 32, 4, 2)
NARROW(hopper_32x64, 32, 4, 4)
NARROW(hopper_64x16, 64, 2, 1)
NARROW(hopper_64x32, 64, 2, 2)
NARROW(hopper_64x64, 64, 2, 4)
NARROW(hopper_128x16, 128, 1, 1)
NARROW(hopper_128x32, 128, 1, 2)
NARROW(hopper_128x64, 128, 1, 4)
