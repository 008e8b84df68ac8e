// For tests: runs an op on each instruction set that it is compiled for and this machine has.
#pragma once

#include <gtest/gtest.h>

#define HWY_DISABLE_PCLMUL_AES  // the same instruction sets as the ops
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#include "hwy/highway.h"

namespace fathom::kernels {

template <class F>
void for_each_simd_target(F&& f) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    f();
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
  }
}

}  // namespace fathom::kernels
