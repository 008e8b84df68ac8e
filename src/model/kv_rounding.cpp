#include "model/kv_rounding.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include "core/dtype.h"
#include "core/expect.h"
#include "kernels/attention/fp4_kv_pages.h"
#include "kernels/attention/paged_kv_cache.h"

namespace fathom::model {
namespace {

using kernels::kHeadDim;

// A key or a value of one head, in place.
void round_to_bf16(float* head, int64_t size, bool) {
  for (int64_t d = 0; d < size; ++d) head[d] = static_cast<float>(bf16(head[d]));
}

// A shorter head lies in the 64 dimensions of a page as its two halves at 0 and 32, zeros behind each.
template <class Pages>
void round_to_pages(float* head, int64_t size, bool value) {
  FATHOM_EXPECT(size % 16 == 0 && size <= kHeadDim, "keys in few bits have 16, 32, 48 or 64 dimensions");
  const int64_t half      = size / 2;
  const auto place        = [half](int64_t d) { return d < half ? d : kHeadDim / 2 + d - half; };
  float numbers[kHeadDim] = {};
  uint8_t strip[Pages::kStripBytes];
  for (int64_t d = 0; d < size; ++d) numbers[place(d)] = head[d];
  Pages::put(strip, 0, value, numbers);
  for (int64_t d = 0; d < size; ++d) head[d] = Pages::get(strip, 0, value, place(d));
}

// head = H head / sqrt(size), H a Hadamard matrix (Sylvester's): its own inverse.
void rotate(float* head, int64_t size) {
  FATHOM_EXPECT((size & (size - 1)) == 0, "a Hadamard rotation needs heads of a power of two of dimensions");
  for (int64_t apart = 1; apart < size; apart *= 2)
    for (int64_t d = 0; d < size; ++d)
      if ((d & apart) == 0) {
        const float a = head[d], b = head[d + apart];
        head[d]         = a + b;
        head[d + apart] = a - b;
      }
  const float norm = 1 / std::sqrt(static_cast<float>(size));
  for (int64_t d = 0; d < size; ++d) head[d] *= norm;
}

using RoundHead = void (*)(float* head, int64_t size, bool value);

template <RoundHead round, KvRotation rotation>
void rounding_kv_store(View<const float, 3> keys, View<const float, 3> values,
                       const kernels::SequenceRows& rows, const kernels::KvPages& kv, const Execution& on) {
  const auto rounded = [](View<const float, 3> from, bool value, std::vector<float>& to) {
    const int64_t size = from.extent(2);
    for (int64_t t = 0; t < from.extent(0); ++t)
      for (int64_t h = 0; h < from.extent(1); ++h) {
        for (int64_t d = 0; d < size; ++d) to.push_back(from(t, h, d));
        float* const head = to.data() + to.size() - size;
        if (rotation == KvRotation::hadamard) rotate(head, size);
        round(head, size, value);
        if (rotation == KvRotation::hadamard) rotate(head, size);
      }
    return View<const float, 3>(to.data(), {from.extent(0), from.extent(1), size});
  };
  std::vector<float> of_keys, of_values;
  const auto k = rounded(keys, false, of_keys), v = rounded(values, true, of_values);
  cpu_ops().kv_store(k, v, rows, kv, on);
}

template <RoundHead round, RoundHead window_round, KvRotation rotation>
Ops with_kv_stores() {
  Ops ops             = cpu_ops();
  ops.kv_store        = rounding_kv_store<round, rotation>;
  ops.window_kv_store = rounding_kv_store<window_round, rotation>;
  return ops;
}

// Layers with a window are rounded as kv_format_of() says.
template <RoundHead round, RoundHead window_round = round>
const Ops& ops_rounding(KvRotation rotation) {
  static const Ops plain   = with_kv_stores<round, window_round, KvRotation::none>(),
                   rotated = with_kv_stores<round, window_round, KvRotation::hadamard>();
  return rotation == KvRotation::hadamard ? rotated : plain;
}

}  // namespace

const Ops& cpu_ops_rounding_kv(KvFormat format, KvRotation rotation) {
  switch (format) {
    case KvFormat::bf16:
      break;
    case KvFormat::fp8:
      return ops_rounding<round_to_pages<kernels::Fp8KvPages>>(rotation);
    case KvFormat::k8v4:
      return ops_rounding<round_to_pages<kernels::K8V4KvPages>, round_to_bf16>(rotation);
    case KvFormat::nvfp4:
      return ops_rounding<round_to_pages<kernels::Nvfp4KvPages>, round_to_bf16>(rotation);
  }
  return ops_rounding<round_to_bf16>(rotation);
}

}  // namespace fathom::model
