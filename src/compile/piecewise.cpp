#include "compile/piecewise.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "core/expect.h"

namespace fathom::compile {
namespace {

int64_t bytes_at(const Type& type, std::span<const int64_t> symbols) {
  return product(type.shape).value(symbols) * traits(type.dtype).bits / 8;
}

std::vector<Piece> cut(const Graph& graph, bool regions) {
  if (regions) return pieces_of(graph);
  Graph whole = graph;
  whole.regions.clear();
  return pieces_of(whole);
}

}  // namespace

Piecewise::Piecewise(Graph graph, CompileCache& cache, bool regions, bool fused)
    : graph_(std::move(graph)), inputs_(graph_.inputs()), at_(graph_.nodes.size()) {
  for (Piece& piece : cut(graph_, regions))
    parts_.push_back({std::move(piece.inputs), std::move(piece.outputs), std::move(piece.symbols),
                      cache.compiled(piece.graph, fused)});

  std::vector<int> last_use(graph_.nodes.size());
  for (size_t p = 0; p < parts_.size(); ++p)
    for (const int id : parts_[p].inputs) last_use[static_cast<size_t>(id)] = static_cast<int>(p);
  std::set<int> of_caller;
  for (const Output& output : graph_.outputs) of_caller.insert(output.node);
  for (size_t p = 0; p < parts_.size(); ++p)
    for (const int id : parts_[p].outputs)
      if (!of_caller.count(id)) {
        in_slab_.push_back(id);
        lifetimes_.push_back({.first = static_cast<int>(p), .last = last_use[static_cast<size_t>(id)]});
      }
}

size_t Piecewise::executables() const {
  std::set<const Executable*> different;
  for (const Part& part : parts_) different.insert(part.executable.get());
  return different.size();
}

size_t Piecewise::launches() const {
  size_t launches = 0;
  for (const Part& part : parts_) launches += part.executable->plan().groups.size();
  return launches;
}

void Piecewise::bind(std::span<const int64_t> symbols) {
  if (bound_ && std::ranges::equal(symbols_, symbols)) return;
  for (size_t i = 0; i < in_slab_.size(); ++i)
    lifetimes_[i].bytes = bytes_at(graph_[in_slab_[i]].type, symbols);
  const Slab slab = plan_slab(lifetimes_);
  slab_           = Buffer<std::byte>(slab.bytes);
  for (size_t i = 0; i < in_slab_.size(); ++i)
    at_[static_cast<size_t>(in_slab_[i])] = slab_.data() + slab.offsets[i];
  symbols_ = {symbols.begin(), symbols.end()};
  bound_   = true;
}

void Piecewise::run(std::span<const int64_t> symbols, std::span<const void* const> inputs,
                    std::span<void* const> outputs, ThreadPool& pool) {
  FATHOM_EXPECT(inputs.size() == inputs_.size() && outputs.size() == graph_.outputs.size() &&
                    symbols.size() == graph_.symbols.size(),
                "a pointer for each input and output, a value for each symbol");
  bind(symbols);
  // The first output that a node is has the node's memory. Inputs are only read.
  for (size_t o = outputs.size(); o-- > 0;)
    at_[static_cast<size_t>(graph_.outputs[o].node)] = static_cast<std::byte*>(outputs[o]);
  for (size_t i = 0; i < inputs.size(); ++i)
    at_[static_cast<size_t>(inputs_[i])] = static_cast<std::byte*>(const_cast<void*>(inputs[i]));

  const auto memory = [&](int id) { return at_[static_cast<size_t>(id)]; };
  for (const Part& part : parts_) {
    part_symbols_.clear();
    from_.clear();
    to_.clear();
    for (const int symbol : part.symbols) part_symbols_.push_back(symbols[static_cast<size_t>(symbol)]);
    for (const int id : part.inputs) from_.push_back(memory(id));
    for (const int id : part.outputs) to_.push_back(memory(id));
    part.executable->run(part_symbols_, from_, to_, pool);
  }
  // Outputs that are inputs, or the same node twice.
  for (size_t o = 0; o < outputs.size(); ++o) {
    const int id        = graph_.outputs[o].node;
    const int64_t bytes = bytes_at(graph_[id].type, symbols);
    if (memory(id) != outputs[o] && bytes > 0)
      std::memcpy(outputs[o], memory(id), static_cast<size_t>(bytes));
  }
}

}  // namespace fathom::compile
