#include "model/kv_rounding.h"

#include <cstdint>
#include <vector>

#include "core/dtype.h"
#include "core/expect.h"
#include "kernels/attention/paged_kv_cache.h"

namespace fathom::model {
namespace {

using kernels::Fp8KvPages, kernels::kHeadDim;

// A key or a value of one head, in place.
void round_to_bf16(float* head, int64_t size) {
  for (int64_t d = 0; d < size; ++d) head[d] = static_cast<float>(bf16(head[d]));
}

// A shorter head lies in the 64 dimensions of a page as its two halves at 0 and 32, zeros behind each.
void round_to_fp8(float* head, int64_t size) {
  FATHOM_EXPECT(size % 16 == 0 && size <= kHeadDim, "FP8 keys have 16, 32, 48 or 64 dimensions");
  const int64_t half      = size / 2;
  const auto place        = [half](int64_t d) { return d < half ? d : kHeadDim / 2 + d - half; };
  float numbers[kHeadDim] = {};
  uint8_t strip[Fp8KvPages::kStripBytes];
  for (int64_t d = 0; d < size; ++d) numbers[place(d)] = head[d];
  Fp8KvPages::put(strip, 0, false, numbers);
  for (int64_t d = 0; d < size; ++d) head[d] = Fp8KvPages::get(strip, 0, false, place(d));
}

using RoundHead = void (*)(float* head, int64_t size);

template <RoundHead round>
void rounding_kv_store(View<const float, 3> keys, View<const float, 3> values,
                       const kernels::SequenceRows& rows, const kernels::KvPages& kv, const Execution& on) {
  const auto rounded = [](View<const float, 3> from, std::vector<float>& to) {
    const int64_t size = from.extent(2);
    for (int64_t t = 0; t < from.extent(0); ++t)
      for (int64_t h = 0; h < from.extent(1); ++h) {
        for (int64_t d = 0; d < size; ++d) to.push_back(from(t, h, d));
        round(to.data() + to.size() - size, size);
      }
    return View<const float, 3>(to.data(), {from.extent(0), from.extent(1), size});
  };
  std::vector<float> of_keys, of_values;
  const auto k = rounded(keys, of_keys), v = rounded(values, of_values);
  cpu_ops().kv_store(k, v, rows, kv, on);
}

Ops with(decltype(Ops::kv_store) kv_store) {
  Ops ops      = cpu_ops();
  ops.kv_store = kv_store;
  return ops;
}

}  // namespace

const Ops& cpu_ops_rounding_kv(KvFormat format) {
  static const Ops to_bf16 = with(rounding_kv_store<round_to_bf16>),
                   to_fp8  = with(rounding_kv_store<round_to_fp8>);
  return format == KvFormat::fp8 ? to_fp8 : to_bf16;
}

}  // namespace fathom::model
