// What the variants are made of: attention of some rows to some keys, the merge of two such results, and the
// exchange with the other rank.
#pragma once

#include <vector>

#include "cuda/device_buffer.h"
#include "cuda/event.h"
#include "cuda/side_stream.h"
#include "kernels/attention/flash_attention.h"
#include "lab/peer_ranks.h"
#include "ring_attention.h"

namespace fathom::lab::ring_attention_gpu {

// Attention by the op of kernels/attention/flash_attention.h, with its lists of key blocks.
class Turn {
 public:
  enum class Keys {
    causal,  // the last row is at the last key
    before,  // all keys lie before all rows
  };
  // Lists the blocks on context.stream.
  Turn(int64_t rows, int64_t keys, Keys which, Context& context);
  // `lse`: [kHeads, rows], a head's numbers side by side.
  void run(ConstRows q, ConstRows k, ConstRows v, Rows out, View<float, 2> lse, StreamRef stream) const;

 private:
  DeviceBuffer<kernels::AttentionTile> tiles_;
  DeviceBuffer<uint32_t> blocks_;
  DeviceBuffer<int32_t> counts_;
  int64_t most_;
  kernels::BlockMask list() const;
};

// part = both results as one, over the keys of both. lse: [kHeads, rows], as in Turn.
void merge(Rows part, View<const float, 2> lse, ConstRows more, View<const float, 2> more_lse,
           StreamRef stream);

// A rank's exchanges with the other one, by copy engines on a second stream: pushes and their signals.
class Exchange {
 public:
  // Signals: those pushes, and that a rank has begun its step.
  static constexpr int kSignals = 3;
  // By both ranks at the same time.
  Exchange(const RingAttention& p, const Rank& me);

  int own() const { return own_; }
  int other() const { return 1 - own_; }

  // Begins the step on the second stream, when `main` gets here: what comes after is done by both ranks.
  void begin(StreamRef main);
  // Rows into the other rank's memory: of the same buffer there, from row `first` on.
  void push(ConstRows rows, Rows to_like, int64_t first, StreamRef stream) const;
  void push_nonce(const RingAttention& p, StreamRef stream) const;
  void signal(int i, StreamRef stream) const { peers_.signal(other(), i, step_, stream); }
  void wait(int i, StreamRef stream) const { peers_.wait(other(), i, step_, stream); }
  StreamRef stream() const { return side_.get(); }
  // `main` ends with the second stream.
  void end(StreamRef main) const;

 private:
  int own_;
  PeerRanks peers_;
  std::vector<const void*> memory_;  // of this rank, in the peers' order
  SideStream side_;
  Event begins_{Event::Timing::off}, ends_{Event::Timing::off};
  uint32_t step_ = 0;
};

// Rows within this GPU.
void copy(ConstRows from, Rows to, StreamRef stream);

}  // namespace fathom::lab::ring_attention_gpu
