// Loops that do nothing but multiply and add in registers, for measuring the arithmetic peak of an
// instruction set.
//
// bytes   0
// flops   flops_per_step a step; one multiply-add counts as two
// limit   the multiply-add units
// idea    enough independent chains to cover the latency of an operation on every unit that can do it
#pragma once

#include <cstdint>
#include <span>

#include "core/dtype.h"
#include "machine/features.h"

namespace fathom::machine {

// What a multiply-add adds to a floating-point chain at each step, from a start of 1, 2, 3, ...: exact for
// the first thousands of steps, and never large, infinite or subnormal after.
inline constexpr double kFmaTerm = 0x1p-10;

struct FmaKernel {
  const char* isa;
  DType dtype;  // of what is multiplied; narrow types add into fp32 or int32
  std::span<const Feature> needs;
  double flops_per_step;
  double (*run)(int64_t steps);  // returns the sum of the chains' first lanes, which tells how many steps ran
};

// All that this build knows, narrow vectors first. Run one only where nothing it needs is missing.
std::span<const FmaKernel> fma_kernels();

// By instruction set, one file each.
std::span<const FmaKernel> fma_kernels_portable();
std::span<const FmaKernel> fma_kernels_avx2();
std::span<const FmaKernel> fma_kernels_avx512();
std::span<const FmaKernel> fma_kernels_amx();

}  // namespace fathom::machine
