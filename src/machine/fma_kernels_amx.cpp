// AMX: four accumulator tiles, two left and two right tiles: all eight tile registers, as a GEMM uses them.
#include <immintrin.h>

#include "machine/fma_kernels.h"

// Behind the includes: their inline functions must run on every processor.
#pragma GCC target("amx-tile,amx-int8,amx-bf16")

namespace fathom::machine {
namespace {

constexpr int kRows = 16, kRowBytes = 64;  // of every tile

struct alignas(64) TileConfiguration {  // as ldtilecfg reads it: palette 1, then shapes of 8 tiles
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16]       = {};
};

// The intrinsics do not tell the compiler which memory they read: without this it drops the stores before
// them.
template <class T>
void keep_stores(const T& memory) {
  asm volatile("" : : "r"(&memory) : "memory");
}

// Tiles 0 to 3 are sums and start at zero; 4 and 5 are left, 6 and 7 right factors.
void fill_tiles(uint32_t left_word, uint32_t right_word) {
  TileConfiguration configuration;
  for (int tile = 0; tile < 8; ++tile) {
    configuration.row_bytes[tile] = kRowBytes;
    configuration.rows[tile]      = kRows;
  }
  keep_stores(configuration);
  _tile_loadconfig(&configuration);
  alignas(64) uint32_t left[kRows * kRowBytes / 4], right[kRows * kRowBytes / 4];
  for (int i = 0; i < kRows * kRowBytes / 4; ++i) left[i] = left_word, right[i] = right_word;
  keep_stores(left);
  keep_stores(right);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, left, kRowBytes);
  _tile_loadd(5, left, kRowBytes);
  _tile_loadd(6, right, kRowBytes);
  _tile_loadd(7, right, kRowBytes);
}

// The sum of the four tiles' first elements.
template <class T>
double first_sums() {
  alignas(64) T sums[4][kRows * kRowBytes / sizeof(T)];
  _tile_stored(0, sums[0], kRowBytes);
  _tile_stored(1, sums[1], kRowBytes);
  _tile_stored(2, sums[2], kRowBytes);
  _tile_stored(3, sums[3], kRowBytes);
  _tile_release();
  return static_cast<double>(sums[0][0]) + static_cast<double>(sums[1][0]) + static_cast<double>(sums[2][0]) +
         static_cast<double>(sums[3][0]);
}

double tiles_int8(int64_t steps) {
  fill_tiles(0x01010101, 0x02020202);
  for (int64_t step = 0; step < steps; ++step) {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  return first_sums<int32_t>();
}

double tiles_bf16(int64_t steps) {
  fill_tiles(0x3f803f80, 0x3a803a80);  // pairs of 1 and of kFmaTerm
  for (int64_t step = 0; step < steps; ++step) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  return first_sums<float>();
}

constexpr Feature kNeedsInt8[] = {Feature::amx_int8};
constexpr Feature kNeedsBf16[] = {Feature::amx_bf16};

// A product of tiles: 16 x 16 sums, each over a row of 64 bytes.
const FmaKernel kKernels[] = {
    {"amx_int8", DType::int8, kNeedsInt8, 4 * 2.0 * 16 * 16 * 64, tiles_int8},
    {"amx_bf16", DType::bf16, kNeedsBf16, 4 * 2.0 * 16 * 16 * 32, tiles_bf16},
};

}  // namespace

std::span<const FmaKernel> fma_kernels_amx() { return kKernels; }

}  // namespace fathom::machine
