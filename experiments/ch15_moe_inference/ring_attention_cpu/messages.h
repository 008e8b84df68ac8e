// What ranks send: a header with the sender's nonce, then rows, piece after piece.
#pragma once

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <span>

#include "ring_attention.h"

namespace fathom::lab::ring_attention_cpu {

struct Piece {
  const float* rows;
  int64_t count;
};

// Writes a message and returns its length in floats.
inline int64_t write_message(float* message, uint64_t nonce, std::initializer_list<Piece> pieces) {
  std::fill_n(message, kHeader, 0.0f);
  std::memcpy(message, &nonce, sizeof nonce);
  float* to = message + kHeader;
  for (const Piece& piece : pieces) to = std::copy_n(piece.rows, piece.count * kHeadDim, to);
  return to - message;
}
inline uint64_t nonce_of(const float* message) {
  uint64_t nonce = 0;
  std::memcpy(&nonce, message, sizeof nonce);
  return nonce;
}
inline const float* rows_of_message(const float* message) { return message + kHeader; }

inline std::span<const float> out_of(const float* message, int64_t floats) {
  return {message, static_cast<size_t>(floats)};
}
inline std::span<float> into(float* message, int64_t floats) {
  return {message, static_cast<size_t>(floats)};
}

// Keys and values of two chunks.
inline int64_t kv_floats(Chunk a, Chunk b) { return kHeader + 2 * (a.rows + b.rows) * kHeadDim; }

}  // namespace fathom::lab::ring_attention_cpu
