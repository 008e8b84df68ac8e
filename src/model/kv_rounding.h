// What a KV cache in few bits costs in quality, on a CPU: keys and values are rounded as the GPU's cache
// holds them, and kept in fp32.
#pragma once

#include "model/gpu_kv_cache.h"
#include "model/ops.h"

namespace fathom::model {

// cpu_ops() whose kv_store rounds keys and values, [T, Hkv, Dh] each: to BF16, or to what Fp8KvPages
// (kernels/attention/paged_kv_cache.h) reads back, for which Dh must be 16, 32, 48 or 64 and all finite.
const Ops& cpu_ops_rounding_kv(KvFormat format);

}  // namespace fathom::model
