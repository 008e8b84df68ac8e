// The rung tcgen05 without Blackwell: its index arithmetic and descriptors, run on the host against an
// emulation of what the PTX ISA (9.7.16) says that TMA, tcgen05.mma and tcgen05.ld do. Roles run one after
// another here: what the barriers order is not tested.
#include "experiments/labs/matmul/bf16/tcgen05_pair.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "core/dtype.h"

namespace fathom::lab::matmul::tcgen05_pair {
namespace {

constexpr int kStages = 6, kSharedBytes = 1024 + kStages * kStageBytes;

uint64_t bits(uint64_t word, int first, int count) { return word >> first & ((uint64_t{1} << count) - 1); }

struct Matrix {
  int rows, columns;
  std::vector<bf16> data;

  // Integers from -7 to 7, without a period.
  Matrix(int m, int n, unsigned seed) : rows(m), columns(n) {
    std::mt19937 random(seed);
    for (int i = 0; i < m * n; ++i) data.emplace_back(static_cast<float>(random() % 15) - 7);
  }
  // Zero outside, as TMA fills.
  float at(int i, int j) const {
    return i < rows && j < columns ? static_cast<float>(data[static_cast<size_t>(i * columns + j)]) : 0;
  }
};

struct Cta {
  std::vector<uint8_t> shared = std::vector<uint8_t>(kSharedBytes, 0xff);  // NaN where nothing was written
  std::vector<float> tensor   = std::vector<float>(128 * 512, NAN);        // [lane][column]

  bf16 element(uint64_t address) const {
    bf16 value;
    std::memcpy(&value, &shared.at(address), sizeof value);
    return value;
  }
};

// cp.async.bulk.tensor of a box of kHalfRows x kTileK with the 128-byte swizzle: bits 4 to 6 of an address
// are combined with bits 7 to 9.
void load(Cta& cta, uint32_t to, const Matrix& from, int row, int column) {
  for (int r = 0; r < kHalfRows; ++r)
    for (int c = 0; c < kTileK; ++c) {
      const uint32_t linear = to + static_cast<uint32_t>(r * 128 + c * 2), at = linear ^ (linear >> 7 & 7)
                                                                                             << 4;
      const bf16 value(from.at(row + r, column + c));
      std::memcpy(&cta.shared.at(at), &value, sizeof value);
    }
}

// Element (row, k) of a K-major operand with the 128-byte swizzle.
float operand(const Cta& cta, uint64_t descriptor, int row, int k) {
  const uint64_t start = bits(descriptor, 0, 14) << 4, eight_rows = bits(descriptor, 32, 14) << 4;
  const uint64_t linear =
      start + static_cast<uint64_t>(row / 8) * eight_rows + static_cast<uint64_t>(row % 8 * 128 + k * 2);
  return static_cast<float>(cta.element(linear ^ bits(linear, 7, 3) << 4));
}

// tcgen05.mma.cta_group::2.kind::f16: of m rows of a and of d each CTA has half, in its lanes from 0 on; of n
// rows of b, which are columns of d, each has half too, at the same offset of its shared memory.
void mma(std::array<Cta, 2>& pair, uint32_t d, uint64_t a, uint64_t b, uint32_t instruction, bool add) {
  const int n = static_cast<int>(bits(instruction, 17, 6)) * 8,
            m = static_cast<int>(bits(instruction, 24, 5)) * 16;
  ASSERT_EQ(d >> 16, 0u) << "sums begin at lane 0";
  ASSERT_LE(static_cast<int>(d & 0xffff) + n, 512);
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      Cta& cta = pair[static_cast<size_t>(i / (m / 2))];
      float& sum =
          cta.tensor.at(static_cast<size_t>(i % (m / 2) * 512) + (d & 0xffff) + static_cast<size_t>(j));
      if (!add) sum = 0;
      for (int k = 0; k < 16; ++k)
        sum += operand(cta, a, i % (m / 2), k) *
               operand(pair[static_cast<size_t>(j / (n / 2))], b, j % (n / 2), k);
    }
}

// tcgen05.ld.32x32b: thread `lane` of the warp gets columns of lane `lane` of the 32 that the address names,
// which must be those of warp % 4.
std::array<float, kPart> read(const Cta& cta, uint32_t address, int warp, int lane) {
  EXPECT_EQ(address >> 16, static_cast<uint32_t>(warp % 4 * 32)) << "lanes of another warp";
  std::array<float, kPart> columns{};
  for (size_t c = 0; c < kPart; ++c)
    columns[c] = cta.tensor.at(((address >> 16) + static_cast<size_t>(lane)) * 512 + (address & 0xffff) + c);
  return columns;
}

TEST(Tcgen05Pair, MultipliesAsTheInstructionsSay) {
  // Two rows and two columns of tiles with ragged edges; blocks of k go around the stages, the last one is
  // not full.
  constexpr int kM = 260, kN = 264, kK = 7 * kTileK + 8;
  constexpr int kBlocks = (kK + kTileK - 1) / kTileK;
  const Matrix a(kM, kK, 1), b(kN, kK, 5);
  std::vector<float> out(static_cast<size_t>(kM * kN), NAN);
  std::array<Cta, 2> pair;
  int stage = 0, accumulator = 0;
  for (int tile_m = 0; tile_m < 2; ++tile_m)
    for (int tile_n = 0; tile_n < 2; ++tile_n, accumulator ^= 1) {
      for (int block = 0; block < kBlocks; ++block, stage = (stage + 1) % kStages) {
        const auto at = static_cast<uint32_t>(1024 + stage * kStageBytes);
        for (int rank = 0; rank < 2; ++rank) {
          Cta& cta = pair[static_cast<size_t>(rank)];
          load(cta, at, a, first_row_of_a(tile_m, rank), block * kTileK);
          load(cta, at + kHalfBytes, b, first_row_of_b(tile_n, rank), block * kTileK);
        }
        for (int step = 0; step < kSteps; ++step)
          mma(pair, sums_at(0, accumulator), descriptor_of_a(at, step), descriptor_of_b(at, step),
              kInstruction, block > 0 || step > 0);
      }
      for (int rank = 0; rank < 2; ++rank)
        for (int warp = 2; warp < 6; ++warp)
          for (int lane = 0; lane < 32; ++lane)
            for (int part = 0; part < kTileN; part += kPart) {
              const auto columns =
                  read(pair[static_cast<size_t>(rank)], part_at(0, accumulator, warp, part), warp, lane);
              const int row = stored_row(tile_m, rank, warp, lane);
              for (int c = 0; c < kPart; ++c)
                if (const int column = tile_n * kTileN + part + c; row < kM && column < kN)
                  out[static_cast<size_t>(row * kN + column)] = columns[static_cast<size_t>(c)];
            }
    }
  for (int i = 0; i < kM; ++i)
    for (int j = 0; j < kN; ++j) {
      float sum = 0;  // small integers: exact
      for (int k = 0; k < kK; ++k) sum += a.at(i, k) * b.at(j, k);
      ASSERT_EQ(out[static_cast<size_t>(i * kN + j)], sum) << "row " << i << ", column " << j;
    }
}

}  // namespace
}  // namespace fathom::lab::matmul::tcgen05_pair
