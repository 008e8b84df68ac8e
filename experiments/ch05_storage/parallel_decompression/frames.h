// The problem: decompress a text that was compressed in independent frames of 128 KiB, with zstd (level 3) or
// lz4.
//
// The text is made of words of a random vocabulary, with a skewed distribution, in lines: it compresses about
// as well as logs and prose. The compressed bytes are in memory: this is the part of a load that comes after
// the disk.
#pragma once

#include <lz4.h>
#include <zstd.h>

#include <memory>
#include <vector>

#include "lab/problem.h"

namespace fathom::lab::parallel_decompression {

constexpr int64_t kFrame = 128 << 10;  // bytes of text in each but the last

enum class Codec { zstd, lz4 };

struct Frames {
  Codec codec;
  int64_t count;                               // of frames
  std::shared_ptr<std::vector<int64_t>> ends;  // where each frame ends in `packed`, from one fill to the next
  View<const uint8_t, 1> text;                 // for the reference only
  View<const uint8_t, 1> packed;               // frames one behind the other, then zeros
  View<const int64_t, 1> begin;                // of each frame in `packed`, and the end of the last
  View<uint8_t, 1> out;

  Frames(const Point& at, Arena& arena);

  Cost cost() const { return {.read = begin(count), .written = out.bytes()}; }
  int64_t expected(int64_t i) const { return text(i); }
};

// State of a decoder, kept between frames; one for each thread.
using Decoder = std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)>;
inline Decoder make_decoder() { return {ZSTD_createDCtx(), ZSTD_freeDCtx}; }

inline void decode_frame(const Frames& p, int64_t f, ZSTD_DCtx* decoder) {
  const uint8_t* from    = p.packed.data() + p.begin(f);
  const int64_t packed   = p.begin(f + 1) - p.begin(f);
  uint8_t* to            = p.out.data() + f * kFrame;
  const int64_t left     = p.out.extent(0) - f * kFrame;
  const int64_t unpacked = left < kFrame ? left : kFrame;
  const auto bytes       = static_cast<size_t>(unpacked);
  const int64_t delivered =
      p.codec == Codec::zstd
          ? static_cast<int64_t>(ZSTD_decompressDCtx(decoder, to, bytes, from, static_cast<size_t>(packed)))
          : LZ4_decompress_safe(reinterpret_cast<const char*>(from), reinterpret_cast<char*>(to),
                                static_cast<int>(packed), static_cast<int>(unpacked));
  FATHOM_EXPECT(delivered == unpacked, "a frame does not decode to its length");
}

Launch<Frames> prepare_one_thread(const Frames& p, Context& context);
Launch<Frames> prepare_all_threads(const Frames& p, Context& context);

}  // namespace fathom::lab::parallel_decompression
