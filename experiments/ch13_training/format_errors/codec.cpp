// Each number becomes its code, and the code becomes the number that it stands for.
#include <cmath>

#include "groups.h"

namespace fathom::lab::format_errors {

using namespace kernels;
namespace {

template <class Format>
float rounded(float x) {
  if constexpr (kPacked<Format>)
    return static_cast<float>(fp4_e2m1(x));
  else if constexpr (std::is_same_v<CodeOf<Format>, int8_t>)
    return static_cast<int8_t>(std::clamp(std::nearbyint(x), -127.0f, 127.0f));
  else
    return static_cast<float>(CodeOf<Format>(x));
}

template <class Format>
void round_group(const bf16* x, int64_t n, float scale, float tensor_scale, bf16* out) {
  const float unit = scale * tensor_scale;
  for (int64_t i = 0; i < n; ++i) {
    const float code = unit > 0 ? rounded<Format>(static_cast<float>(x[i]) / unit) : 0.0f;
    out[i]           = bf16(code * scale * tensor_scale);
  }
}

}  // namespace

void codec(const FakeQuantize& p, Context&) {
  with_format(p.format, [&]<class Format>() {
    for (int64_t t = 0; t < p.x.extent(0); ++t)
      round_groups<Format>(p.matrix(t), p.rounded(t), round_group<Format>);
  });
}

}  // namespace fathom::lab::format_errors
