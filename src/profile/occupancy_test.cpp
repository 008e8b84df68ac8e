#include "profile/occupancy.h"

#include <gtest/gtest.h>

#include "core/expect.h"

namespace fathom::profile {
namespace {

using Limiters = std::vector<Limiter>;

struct Case {
  int compute_capability;
  int64_t threads;
  int registers;
  int64_t shared;
  int blocks;
  double share;
  Limiters limiters;
};

void expect(const Case& c) {
  SCOPED_TRACE(testing::Message() << "sm_" << c.compute_capability << ", " << c.threads << " threads, "
                                  << c.registers << " registers, " << c.shared << " bytes");
  const Occupancy seen =
      theoretical_occupancy(*gpu_facts(c.compute_capability), c.threads, c.registers, c.shared);
  EXPECT_EQ(seen.blocks, c.blocks);
  EXPECT_DOUBLE_EQ(seen.share, c.share);
  EXPECT_EQ(to_string(seen.limiters), to_string(c.limiters));
}

// A warp of 64 registers takes 2048 of 65536: 32 warps, four blocks of eight.
TEST(Occupancy, RegistersLimit) {
  expect({90, 256, 64, 0, 4, 0.5, {Limiter::registers}});
  expect({80, 256, 64, 0, 4, 0.5, {Limiter::registers}});
  expect({100, 256, 64, 0, 4, 0.5, {Limiter::registers}});
  expect({90, 256, 128, 0, 2, 0.25, {Limiter::registers}});
  // 33 registers are 1056 a warp, allocated as 1280: 12 warps a partition, 48 in all.
  expect({90, 256, 33, 0, 6, 0.75, {Limiter::registers}});
  // 168 are 5376: three warps a partition, so a block of 12 warps is the only one.
  expect({90, 384, 168, 0, 1, 12.0 / 64, {Limiter::registers}});
}

TEST(Occupancy, FullIsLimitedByWarpsAlone) {
  expect({90, 256, 32, 0, 8, 1, {Limiter::warps}});
  expect({90, 1024, 32, 0, 2, 1, {Limiter::warps}});              // registers allow no more either
  expect({90, 64, 32, 0, 32, 1, {Limiter::warps}});               // nor would blocks
  expect({90, 2048 / 3, 16, 0, 2, 44.0 / 64, {Limiter::warps}});  // 22 warps a block
}

TEST(Occupancy, BlocksLimit) {
  expect({90, 32, 32, 0, 32, 0.5, {Limiter::blocks}});
  expect({90, 1, 1, 0, 32, 0.5, {Limiter::blocks}});  // rounded up to a whole warp
  expect({86, 64, 32, 0, 16, 32.0 / 48, {Limiter::blocks}});
  expect({89, 32, 32, 0, 24, 0.5, {Limiter::blocks}});
}

// The driver reserves 1 KiB for each block.
TEST(Occupancy, SharedMemoryLimits) {
  expect({90, 128, 32, 48 * 1024, 4, 0.25, {Limiter::shared_memory}});
  expect({90, 128, 32, 227 * 1024, 1, 4.0 / 64, {Limiter::shared_memory}});
  expect({80, 128, 32, 163 * 1024, 1, 4.0 / 64, {Limiter::shared_memory}});
  expect({90, 128, 32, 113 * 1024, 2, 8.0 / 64, {Limiter::shared_memory}});
  expect({90, 128, 32, 113 * 1024 + 1, 1, 4.0 / 64, {Limiter::shared_memory}});
  expect({120, 128, 32, 49 * 1024, 2, 8.0 / 48, {Limiter::shared_memory}});
}

TEST(Occupancy, NamesEveryLimiterThatLetsInNoMore) {
  // Registers allow four blocks, and so does shared memory: relaxing one limit alone gains nothing.
  expect({90, 256, 64, 48 * 1024, 4, 0.5, {Limiter::registers, Limiter::shared_memory}});
  EXPECT_EQ(to_string(Limiters{Limiter::registers, Limiter::shared_memory}), "registers and shared memory");
  EXPECT_EQ(to_string(Limiters{Limiter::warps, Limiter::blocks, Limiter::registers}),
            "warps, blocks and registers");
  EXPECT_EQ(to_string(Limiters{}), "");
}

TEST(Occupancy, ALaunchThatIsRefusedHasNone) {
  expect({90, 1025, 16, 0, 0, 0, {Limiter::warps}});
  expect({90, 1024, 65, 0, 0, 0, {Limiter::registers}});
  expect({90, 128, 256, 0, 0, 0, {Limiter::registers}});
  expect({90, 128, 32, 227 * 1024 + 1, 0, 0, {Limiter::shared_memory}});
  EXPECT_THROW((void)theoretical_occupancy(*gpu_facts(90), 0, 32, 0), ContractError);
}

TEST(Occupancy, FillsInARecord) {
  lab::KernelRecord kernel{.block = {32, 8, 1}, .registers = 64, .static_shared = 16, .dynamic_shared = 1008};
  add_occupancy(kernel, 90);
  EXPECT_DOUBLE_EQ(kernel.occupancy.value(), 0.5);
  EXPECT_EQ(kernel.limiter, "registers");

  lab::KernelRecord unknown{.block = {256, 1, 1}, .registers = 64};
  add_occupancy(unknown, 70);
  EXPECT_FALSE(unknown.occupancy);
  EXPECT_EQ(unknown.limiter, "");
}

}  // namespace
}  // namespace fathom::profile
