// A decoder is serial: the meaning of a byte depends on the bytes before it. A file compressed as one
// stream decodes on one core however many there are; compressed in frames it decodes on all of them, for a
// few per cent of its size.
#include <algorithm>
#include <cstring>
#include <memory>

#include "core/rng.h"
#include "frames.h"
#include "lab/experiment.h"

namespace fathom::lab::parallel_decompression {
namespace {

constexpr int kLevel = 3;  // zstd's default

Codec codec_of(const Point& at) {
  const std::string& name = at.text("compression");
  FATHOM_EXPECT(name == "zstd" || name == "lz4", "compression is '" + name + "'; there are zstd and lz4");
  return name == "zstd" ? Codec::zstd : Codec::lz4;
}

void write_text(uint8_t* text, int64_t n, uint64_t seed) {
  constexpr int64_t kVocabulary = 4096, kLongest = 12;
  std::vector<uint8_t> letters(kVocabulary * kLongest), lengths(kVocabulary);
  fill_integers(letters.data(), kVocabulary * kLongest, seed, 'a', 'z' + 1);
  fill_integers(lengths.data(), kVocabulary, seed + 1, 2, kLongest + 1);
  // A word and its separator are at least 3 bytes.
  std::vector<uint32_t> picks(static_cast<size_t>(n / 3 + 1));
  fill_integers(picks.data(), n / 3 + 1, seed + 2, 0, int64_t{1} << 32);
  int64_t at = 0;
  for (const uint32_t pick : picks) {
    if (at >= n) return;
    const double u  = pick / 4294967296.0;
    const auto word = static_cast<size_t>(kVocabulary * u * u * u);  // the first tenth: half of all words
    const int64_t length = std::min<int64_t>(lengths[word], n - at);
    std::memcpy(text + at, &letters[word * kLongest], static_cast<size_t>(length));
    at += length;
    if (at < n) text[at++] = pick % 16 == 0 ? '\n' : ' ';
  }
}

int64_t capacity(Codec codec, int64_t bytes) {
  return codec == Codec::zstd ? static_cast<int64_t>(ZSTD_compressBound(static_cast<size_t>(bytes)))
                              : LZ4_compressBound(static_cast<int>(bytes));
}

int64_t compress(Codec codec, const uint8_t* text, int64_t bytes, uint8_t* to, int64_t room) {
  const auto n = static_cast<size_t>(bytes), most = static_cast<size_t>(room);
  if (codec == Codec::zstd) {
    const size_t packed = ZSTD_compress(to, most, text, n, kLevel);
    FATHOM_EXPECT(!ZSTD_isError(packed), ZSTD_getErrorName(packed));
    return static_cast<int64_t>(packed);
  }
  return LZ4_compress_default(reinterpret_cast<const char*>(text), reinterpret_cast<char*>(to),
                              static_cast<int>(bytes), static_cast<int>(room));
}

}  // namespace

Frames::Frames(const Point& at, Arena& arena)
    : codec(codec_of(at)),
      count((at["bytes"] + kFrame - 1) / kFrame),
      ends(std::make_shared<std::vector<int64_t>>()),
      text(arena.input<uint8_t>({at["bytes"]}, generate<uint8_t>(write_text))),
      packed(arena.input<uint8_t>(
          {count * capacity(codec, kFrame)},
          generate<uint8_t>([codec = codec, text = text, ends = ends](uint8_t* to, int64_t n, uint64_t) {
            ends->clear();
            int64_t end = 0;
            for (int64_t first = 0; first < text.extent(0); first += kFrame) {
              const int64_t bytes = std::min(kFrame, text.extent(0) - first);
              end += compress(codec, text.data() + first, bytes, to + end, n - end);
              ends->push_back(end);
            }
            std::memset(to + end, 0, static_cast<size_t>(n - end));
          }))),
      begin(
          arena.input<int64_t>({count + 1}, generate<int64_t>([ends = ends](int64_t* to, int64_t, uint64_t) {
                                 to[0] = 0;
                                 std::copy(ends->begin(), ends->end(), to + 1);
                               }))),
      out(arena.output<uint8_t>({at["bytes"]})) {}

const Experiment<Frames> frames{
    .question =
        "What does decompressing independent frames on all threads gain over one, for a fast and a dense "
        "codec?",
    .limit    = Limit::memory,
    .axes     = {{"compression", {std::string("zstd"), std::string("lz4")}}, {"bytes", {4 << 20}}},
    .check_at = {{"compression", {std::string("zstd"), std::string("lz4")}},
                 {"bytes", {0, 1, 10007, kFrame - 1, kFrame, kFrame + 1, 3 * kFrame + 5}}},
    .variants =
        {
            {.id         = "one_thread",
             .techniques = {},
             .idea       = "frame after frame",
             .prediction = predict::share(0.08),
             .prepare    = prepare_one_thread},
            {.id         = "all_threads",
             .techniques = {"decompression_offload"},
             .idea       = "an equal run of frames for each thread",
             .prediction = predict::ratio_at_least(1.8),
             .threads    = kAllThreads,
             .prepare    = prepare_all_threads},
        },
};
FATHOM_REGISTER(frames);

}  // namespace fathom::lab::parallel_decompression
