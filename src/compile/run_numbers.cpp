#include "compile/run_numbers.h"

#include <algorithm>
#include <cmath>

#include "core/thread_pool.h"

namespace fathom::compile {
namespace {

template <class Compiled>
std::map<std::string, Numbers> run_numbers(Compiled& program, std::span<const int64_t> symbols,
                                           const std::map<std::string, Numbers>& inputs, ThreadPool& pool) {
  const Graph& graph = program.graph();
  std::vector<Buffer<float>> memory;  // of any dtype
  std::vector<const void*> from;
  std::vector<void*> to;
  for (const int id : graph.inputs()) {
    const Numbers& numbers = inputs.at(graph[id].name);
    memory.emplace_back(static_cast<int64_t>(numbers.size()));
    for (size_t i = 0; i < numbers.size(); ++i)
      if (graph[id].type.dtype == DType::bf16)
        reinterpret_cast<bf16*>(memory.back().data())[i] = bf16(static_cast<float>(numbers[i]));
      else
        memory.back().data()[i] = static_cast<float>(numbers[i]);
    from.push_back(memory.back().data());
  }
  for (const Output& output : graph.outputs) {
    memory.emplace_back(product(graph[output.node].type.shape).value(symbols));
    std::fill_n(memory.back().data(), memory.back().size(), NAN);
    to.push_back(memory.back().data());
  }
  program.run(symbols, from, to, pool);
  std::map<std::string, Numbers> outputs;
  for (size_t o = 0; o < to.size(); ++o) {
    const Type& type = graph[graph.outputs[o].node].type;
    Numbers& numbers = outputs[graph.outputs[o].name];
    for (int64_t i = 0; i < product(type.shape).value(symbols); ++i)
      numbers.push_back(type.dtype == DType::bf16 ? static_cast<float>(static_cast<const bf16*>(to[o])[i])
                                                  : static_cast<const float*>(to[o])[i]);
  }
  return outputs;
}

}  // namespace

std::map<std::string, Numbers> run(Executable& program, std::span<const int64_t> symbols,
                                   const std::map<std::string, Numbers>& inputs, ThreadPool& pool) {
  return run_numbers(program, symbols, inputs, pool);
}

std::map<std::string, Numbers> run(Piecewise& program, std::span<const int64_t> symbols,
                                   const std::map<std::string, Numbers>& inputs, ThreadPool& pool) {
  return run_numbers(program, symbols, inputs, pool);
}

}  // namespace fathom::compile
