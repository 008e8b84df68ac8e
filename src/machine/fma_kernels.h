// Multiply-add loops in registers, which measure the arithmetic peak of an instruction set.
//
// bytes   0
// flops   flops_per_step a step; one multiply-add counts as two
// limit   the multiply-add units
// idea    enough independent chains to cover the latency of an operation on every unit
#pragma once

#include <cstdint>
#include <span>

#include "core/dtype.h"
#include "machine/features.h"

namespace fathom::machine {

// The addend of a floating-point chain at each step, from a start of 1, 2, 3, ...: sums are exact for the
// first thousands of steps, and never become infinite or subnormal.
inline constexpr double kFmaTerm = 0x1p-10;

struct FmaKernel {
  const char* isa;
  DType dtype;  // of the factors; narrow types accumulate in fp32 or int32
  std::span<const Feature> needs;
  double flops_per_step;
  double (*run)(int64_t steps);  // returns the sum of the chains' first lanes, which shows how many steps ran
};

// All of this build, narrow vectors first. Run one only where no feature of `needs` is missing.
std::span<const FmaKernel> fma_kernels();

// One file for each instruction set.
std::span<const FmaKernel> fma_kernels_portable();
std::span<const FmaKernel> fma_kernels_avx2();
std::span<const FmaKernel> fma_kernels_avx512();
std::span<const FmaKernel> fma_kernels_amx();

}  // namespace fathom::machine
