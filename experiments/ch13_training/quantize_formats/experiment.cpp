// A quantiser reads two bytes a number and writes one, or half a one: it ought to take the time of a copy of
// so many bytes. In its way are the scale, which needs all numbers of a group before the first is divided,
// and the arithmetic of 4-bit codes, for which Hopper has no instruction.
#include "lab/experiment.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "conversion.h"
#include "kernels/quant/quantize.h"

namespace fathom::lab::quantize_formats {
namespace {

using namespace kernels;

// A row's bytes.
int64_t code_bytes(NumberFormat format, int64_t columns) {
  return with_format(format, [&]<class Format>() { return code_columns<Format>(columns); });
}
int64_t scale_bytes(NumberFormat format, int64_t columns) {
  return with_format(format, [&]<class Format>() {
    return scale_columns<Format>(columns) * static_cast<int64_t>(sizeof(ScaleOf<Format>));
  });
}

// A group that shares a scale, by the plain reference, which src/kernels/quant/quantize_reference_test.cpp
// compares with a search over all codes.
template <class Format>
class Group {
 public:
  explicit Group(const Conversion& p) : p_(p) {
    if constexpr (kInBlocks<Format>)
      size_ = Format::kBlock;
    else
      size_ = kScaleIsGiven<Format> ? 1 : p.x.extent(1);
  }
  int64_t code(int64_t row, int64_t byte) {
    const int64_t column = kPacked<Format> ? 2 * byte : byte;
    move_to(row, column / size_);
    return reinterpret_cast<const uint8_t*>(codes_.data())[byte - code_columns<Format>(group_ * size_)];
  }
  int64_t scale(int64_t row, int64_t byte) {
    move_to(row, byte / static_cast<int64_t>(sizeof(ScaleOf<Format>)));
    return reinterpret_cast<const uint8_t*>(&scale_)[byte % static_cast<int64_t>(sizeof(ScaleOf<Format>))];
  }

 private:
  void move_to(int64_t row, int64_t group) {
    if (row == row_ && group == group_) return;
    row_ = row, group_ = group;
    const int64_t n = std::min(size_, p_.x.extent(1) - group * size_);
    codes_.resize(static_cast<size_t>(code_columns<Format>(n)));
    float given = p_.tensor_scale(0);
    quantize_reference({&p_.x(row, group * size_), {1, n}},
                       views<Format>(1, n, codes_.data(), &scale_, &given));
  }

  const Conversion& p_;
  int64_t size_, row_ = -1, group_ = -1;
  std::vector<CodeOf<Format>> codes_;
  ScaleOf<Format> scale_;
};

}  // namespace

Conversion::Conversion(const Point& at, Arena& arena)
    : format(number_format(at.text("format"))),
      x(arena.input<bf16>({at["rows"], at["columns"]}, Normal{})),
      // About amax / 448 of normal numbers; those of NVFP4 then have scales of about 10.
      tensor_scale(arena.input<float>({1}, Uniform{0.011, 0.014})),
      codes(arena.output<uint8_t>({at["rows"], code_bytes(format, at["columns"])})),
      scales(arena.output<uint8_t>({at["rows"], scale_bytes(format, at["columns"])})) {}

Cost Conversion::cost() const { return {.read = x.bytes(), .written = codes.bytes() + scales.bytes()}; }

void Conversion::check(Checker& checker) const {
  with_format(format, [&]<class Format>() {
    Group<Format> group(*this);
    checker.values("codes", codes, [&](int64_t r, int64_t byte) { return group.code(r, byte); });
    checker.values("scales", scales, [&](int64_t r, int64_t byte) { return group.scale(r, byte); });
  });
}

namespace {

const std::vector<Value> kFormats(std::begin(kNumberFormatNames), std::end(kNumberFormatNames));

const Experiment<Conversion> quantize_formats{
    .question = "Does quantising to FP8, INT8, MXFP8, MXFP4 and NVFP4 take more than the time of its bytes?",
    .limit    = Limit::memory,
    // 2^29 numbers, 1 GiB.
    .axes = {{"format", kFormats}, {"rows", {65536}}, {"columns", {8192}}},
    // Around the groups, a warp's 1024 numbers and a block's 8192; 16392 is more than a block holds of a row.
    .check_at = {{"format", kFormats},
                 {"rows", {0, 1, 9}},
                 {"columns", {1, 7, 16, 33, 127, 128, 129, 1024, 1032, 8200, 16392}}},
    .variants =
        {
            {.id         = "number_a_thread",
             .launch     = on_gpu(number_a_thread),
             .techniques = {"fp8", "block_scaling", "warp_shuffle"},
             .idea       = "a thread for each number; a group's threads find its scale by shuffles",
             .prediction = predict::share(0.3)},
            {.id         = "vectors_of_8",
             .launch     = on_gpu(vectors_of_8),
             .techniques = {"fp8", "block_scaling", "warp_shuffle", "vectorization"},
             .idea       = "four vectors of 8 numbers a thread, in registers until the scale is known",
             .prediction = predict::ratio_at_least(2)},
            {.id         = "own_rounding",
             .launch     = on_gpu(own_rounding),
             .techniques = {},
             .idea       = "the op: the same, with a reciprocal, one correction, and E2M1 by three additions",
             .prediction = predict::share_at_least(0.9),
             .kind       = Kind::engine,
             .op         = "kernels/quant/quantize.cu"},
        },
    .backend = Backend::cuda,
    .catalog = {"quant-007", "quant-008", "quant-012"},
};
FATHOM_REGISTER(quantize_formats);

}  // namespace
}  // namespace fathom::lab::quantize_formats
