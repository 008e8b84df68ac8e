#include "lab/interleaved_ceilings.h"

#include <gtest/gtest.h>

#include "lab/thread_pools.h"

namespace fathom::lab {
namespace {

bool is_wide(const Control& control) {
  return control.words().find("avx512") != std::string::npos ||
         control.words().find("amx") != std::string::npos;
}

// Variants are compiled for AVX2, so the peak of AVX-512 is no limit of theirs.
TEST(Control, OfOurVariantsIsThePeakOfWhatTheyAreCompiledFor) {
  ThreadPools pools;
  const Cost cost{.flops = 1e6};
  EXPECT_FALSE(is_wide(*cpu_control(Limit::flops, cost, 0, 1, Isa::compiled, pools.of(1))));
  const auto widest = cpu_control(Limit::flops, cost, 0, 1, Isa::widest, pools.of(1));
  if (machine::missing(machine::Feature::avx512f)) {
    EXPECT_FALSE(is_wide(*widest));
  }
}

TEST(Control, OfALibraryIsThePeakOfTheMachine) {
  ExperimentInfo experiment{.limit = Limit::flops};
  const bool has_wider = !machine::missing(machine::Feature::avx512f);
  const VariantInfo ours{.kind = Kind::optimized}, library{.kind = Kind::library};
  VariantInfo wide = ours, of_library = ours;
  wide.needs         = {machine::Feature::avx512f};
  of_library.library = "libopenblas.so.0";  // our own steps around a library's product
  EXPECT_EQ(isa_of(experiment, ours), Isa::compiled);
  EXPECT_EQ(isa_of(experiment, library), has_wider ? Isa::widest : Isa::compiled);
  EXPECT_EQ(isa_of(experiment, wide), has_wider ? Isa::widest : Isa::compiled);
  EXPECT_EQ(isa_of(experiment, of_library), has_wider ? Isa::widest : Isa::compiled);
  experiment.limit = Limit::memory;
  EXPECT_EQ(isa_of(experiment, library), Isa::compiled) << "one limit for all";
}

}  // namespace
}  // namespace fathom::lab
