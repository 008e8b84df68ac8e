// The problem: how samples are made and stored, and the reference.
#include "core/rng.h"
#include "loader.h"

namespace fathom::lab::data_loader {
namespace {

constexpr int kLevel = 3;  // zstd's default

// Rows in which a pixel differs by -2 to 2 from its left neighbour, as in a smooth picture with some noise.
void draw(uint8_t* pixels, int64_t n, uint64_t seed) {
  fill_integers(pixels, n, seed, 0, 5);
  for (int64_t i = 0; i < n; ++i) {
    const int left = i % kPixels == 0 ? 128 : pixels[i - 1];
    pixels[i]      = static_cast<uint8_t>(left + pixels[i] - 2);
  }
}

// Stores all samples in the shard, each at a multiple of kAlignment, and fills the index.
void store(View<const uint8_t, 2> pixels, const ScratchFile& shard, int64_t* index) {
  constexpr int64_t kA = ScratchFile::kAlignment;
  std::vector<uint8_t> file, differences(kPixels);
  for (int64_t s = 0; s < pixels.extent(0); ++s) {
    for (int64_t i = 0; i < kPixels; ++i)
      differences[static_cast<size_t>(i)] =
          static_cast<uint8_t>(pixels(s, i) - (i == 0 ? 0 : pixels(s, i - 1)));
    const size_t begin = file.size();
    file.resize(begin + kStored);
    const size_t bytes = ZSTD_compress(file.data() + begin, kStored, differences.data(), kPixels, kLevel);
    FATHOM_EXPECT(!ZSTD_isError(bytes), ZSTD_getErrorName(bytes));
    file.resize((begin + bytes + kA - 1) / kA * kA);
    index[2 * s]     = static_cast<int64_t>(begin);
    index[2 * s + 1] = static_cast<int64_t>(bytes);
  }
  shard.rewrite(file.data(), static_cast<int64_t>(file.size()));
}

}  // namespace

Samples::Samples(const Point& at, Arena& arena)
    : pixels(arena.input<uint8_t>({at["samples"], kPixels}, generate<uint8_t>(draw))),
      index(arena.input<int64_t>({at["samples"], 2}, generate<int64_t>([shard = shard, pixels = pixels](
                                                                           int64_t* to, int64_t, uint64_t) {
                                   store(pixels, *shard, to);
                                 }))),
      order(arena.input<int32_t>({at["samples"]}, Permutation{})),
      out(arena.output<int64_t>({at["epochs"], at["samples"]})),
      spent(arena.workspace<int64_t>({2})) {}

Cost Samples::cost() const {
  int64_t bytes = 0;
  for (int64_t s = 0; s < index.extent(0); ++s) bytes += index(s, 1);
  return {.written = out.bytes(), .disk_read = out.extent(0) * bytes};
}

void Samples::metrics(CallMetrics& metrics) const {
  metrics["samples"]             = {static_cast<double>(out.size()), "higher"};
  metrics["consumer_idle_share"] = {static_cast<double>(spent(0)) / static_cast<double>(spent(1)), "lower"};
}

int64_t Samples::expected(int64_t, int64_t k) const {
  uint64_t state = 0;
  for (int pass = 0; pass < kPasses; ++pass)
    for (int64_t i = 0; i < kPixels; i += 4) {
      uint32_t word = 0;
      for (int byte = 3; byte >= 0; --byte) word = word << 8 | pixels(order(k), i + byte);
      state = (state ^ word) * kOdd;
      state = state ^ (state >> 29);
    }
  return static_cast<int64_t>(state);
}

}  // namespace fathom::lab::data_loader
