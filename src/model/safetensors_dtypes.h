// The dtype names of safetensors files.
#pragma once

#include "core/dtype.h"

namespace fathom::model {

struct SafetensorsDType {
  const char* name;
  DType dtype;
};

inline constexpr SafetensorsDType kSafetensorsDTypes[] = {
    {"F64", DType::fp64},     {"F32", DType::fp32},         {"BF16", DType::bf16},
    {"F16", DType::fp16},     {"F8_E5M2", DType::fp8_e5m2}, {"F8_E4M3", DType::fp8_e4m3},
    {"F8_E8M0", DType::e8m0}, {"F4", DType::fp4_e2m1},      {"I64", DType::int64},
    {"I32", DType::int32},    {"U32", DType::uint32},       {"I8", DType::int8},
    {"U8", DType::uint8},
};

}  // namespace fathom::model
