#include "cuda/tcgen05_descriptor.h"

#include <gtest/gtest.h>

#include <map>

namespace fathom::ptx {
namespace {

uint64_t bits(uint64_t word, int first, int count) { return word >> first & ((uint64_t{1} << count) - 1); }

// What the hardware reads by the PTX ISA's description of a K-major operand with the 128-byte swizzle: byte
// address of element (row, k) of a product of 16 values of k. The swizzle exchanges 16-byte pieces by
// address: bits 4 to 6 are combined with bits 7 to 9.
uint64_t element_read(uint64_t descriptor, int row, int k) {
  EXPECT_EQ(bits(descriptor, 61, 3), 2u) << "128-byte swizzle";
  EXPECT_EQ(bits(descriptor, 46, 3), 1u) << "the version that Blackwell wants";
  EXPECT_EQ(bits(descriptor, 49, 3), 0u) << "the pattern begins at a multiple of 1024";
  const uint64_t start = bits(descriptor, 0, 14) << 4, eight_rows = bits(descriptor, 32, 14) << 4;
  const uint64_t linear = start + static_cast<uint64_t>(row / 8) * eight_rows +
                          static_cast<uint64_t>(row % 8) * 128 + static_cast<uint64_t>(k) * 2;
  return linear ^ (bits(linear, 7, 3) << 4);
}

TEST(Tcgen05Descriptor, ReadsWhatTmaWrote) {
  constexpr uint32_t kBlock = 0x2c00;  // a multiple of 1024
  // TMA writes piece c of row r at c ^ (r % 8).
  std::map<uint64_t, std::pair<int, int>> written;
  for (int row = 0; row < 128; ++row)
    for (int k = 0; k < 64; ++k)
      written[kBlock + static_cast<uint64_t>(row * 128 + ((k / 8 ^ row % 8) << 4) + k % 8 * 2)] = {row, k};
  ASSERT_EQ(written.size(), 128u * 64u);
  for (int step = 0; step < 4; ++step) {
    const uint64_t descriptor = tcgen05_smem_descriptor_128b(kBlock + static_cast<uint32_t>(32 * step));
    for (int row = 0; row < 128; ++row)
      for (int k = 0; k < 16; ++k)
        ASSERT_EQ(written.at(element_read(descriptor, row, k)), std::pair(row, 16 * step + k))
            << "row " << row << ", k " << k << ", step " << step;
  }
}

TEST(Tcgen05Descriptor, AddressesHave18Bits) {
  EXPECT_EQ(bits(tcgen05_smem_descriptor_128b(0x3fc00), 0, 14) << 4, 0x3fc00u);
  EXPECT_EQ(tcgen05_smem_descriptor_128b(0x1000400), tcgen05_smem_descriptor_128b(0x400))
      << "the CTA's own window";
}

TEST(Tcgen05Descriptor, NamesTheProduct) {
  for (const auto& [m, n] : {std::pair{128, 16}, {128, 256}, {256, 256}, {256, 48}}) {
    const uint32_t word = tcgen05_instruction_descriptor(m, n);
    EXPECT_EQ(bits(word, 0, 4), 0u) << "dense, not saturating";
    EXPECT_EQ(bits(word, 4, 2), 1u) << "sums in fp32";
    EXPECT_EQ(bits(word, 7, 3), 1u) << "a is bf16";
    EXPECT_EQ(bits(word, 10, 3), 1u) << "b is bf16";
    EXPECT_EQ(bits(word, 13, 4), 0u) << "neither negated nor transposed";
    EXPECT_EQ(static_cast<int>(bits(word, 17, 6)) * 8, n);
    EXPECT_EQ(static_cast<int>(bits(word, 24, 5)) * 16, m);
    EXPECT_EQ(bits(word, 30, 2), 0u);
  }
}

}  // namespace
}  // namespace fathom::ptx
