// out(h) = softmax(q(h) k' / 8, sink(h)) v       64 heads over 8 key-value heads, context x 64 each, fp32
//
// bytes   4096 a position, each key and value read once
// flops   16384 a position, divided by the threads
// limit   memory bandwidth
// idea    the engine's op, kernels/attention/attention_cpu.cpp: an online softmax over blocks of positions,
//         so that scores stay in L1; vector lanes are heads
#include "attention.h"
#include "core/thread_pool.h"

namespace fathom::lab::decode_attention_cpu {

void blocks(const DecodeAttention& p, Context& context) {
  const auto writable = [](View<const float, 4> pages) {  // the op's cache type is writable
    return View<float, 4>(const_cast<float*>(pages.data()),
                          {pages.extent(0), pages.extent(1), pages.extent(2), pages.extent(3)});
  };
  auto* scratch = reinterpret_cast<std::byte*>(p.scratch.data());
  kernels::attention_cpu(
      View<const float, 3>(p.q.data(), {1, kHeads, kHeadDim}),
      {.keys = writable(p.keys), .values = writable(p.values)}, p.sinks, 0,
      {.first_row = p.first_row, .positions = p.position, .pages = p.pages},
      View<float, 3>(p.out.data(), {1, kHeads, kHeadDim}),
      {.threads = &context.pool, .scratch = View<std::byte, 1>(scratch, {p.scratch.bytes()})});
}

}  // namespace fathom::lab::decode_attention_cpu
