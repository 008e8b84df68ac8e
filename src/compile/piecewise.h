// A program whose pieces run one after another, equal ones by one executable: regional compilation. Nothing
// is fused across pieces. What passes between them lies in one slab.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "compile/compile_cache.h"
#include "compile/piece.h"

namespace fathom::compile {

class Piecewise {
 public:
  struct Part {
    std::vector<int> inputs, outputs, symbols;  // as of Piece
    std::shared_ptr<Executable> executable;
  };

  // The graph is verified. regions: cut at them; else it is one piece. fused: else a launch for each kernel.
  Piecewise(Graph graph, CompileCache& cache, bool regions = true, bool fused = true);

  // As Executable::run.
  void run(std::span<const int64_t> symbols, std::span<const void* const> inputs,
           std::span<void* const> outputs, ThreadPool& pool);

  const Graph& graph() const { return graph_; }
  const std::vector<Part>& parts() const { return parts_; }
  size_t executables() const;  // different ones
  size_t launches() const;

 private:
  void bind(std::span<const int64_t> symbols);

  Graph graph_;
  std::vector<Part> parts_;
  std::vector<int> inputs_;
  std::vector<int> in_slab_;         // nodes that pass between pieces
  std::vector<Lifetime> lifetimes_;  // of them, in parts; bytes as of the last call
  bool bound_ = false;
  std::vector<int64_t> symbols_;  // of the last call
  Buffer<std::byte> slab_;
  std::vector<std::byte*> at_;  // of each node with memory
  // Of the part at work: kept, so that a call allocates nothing.
  std::vector<int64_t> part_symbols_;
  std::vector<const void*> from_;
  std::vector<void*> to_;
};

}  // namespace fathom::compile
