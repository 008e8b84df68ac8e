// What a KV cache in few bits costs in quality, on a CPU: keys and values are rounded as the GPU's cache
// holds them, and kept in fp32.
#pragma once

#include "model/gpu_kv_cache.h"
#include "model/ops.h"

namespace fathom::model {

// Before a key or a value is rounded: nothing, or a Hadamard matrix of the head's size over its root, and the
// same again afterwards, which undoes it. It spreads a channel that is always large over all of them. (A GPU
// would keep rotated keys, rotate the queries, and rotate the output back: products stay the same.)
enum class KvRotation { none, hadamard };

// cpu_ops() whose kv_store rounds keys and values, [T, Hkv, Dh] each: to BF16, or to what Fp8KvPages,
// K8V4KvPages or Nvfp4KvPages (kernels/attention/fp4_kv_pages.h) read back, for which Dh must be 16, 32, 48
// or 64 and all finite. Layers with a window are rounded to BF16 where others are to 4 bits. A Hadamard
// rotation needs a Dh of 16, 32 or 64.
const Ops& cpu_ops_rounding_kv(KvFormat format, KvRotation rotation = KvRotation::none);

}  // namespace fathom::model
